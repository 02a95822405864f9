// Command training-operator is the PyTorchJob controller of github.com/kubeflow/training-operator, for comparisons.
//
// It differs from the module's own command in one way: it serves no validating webhook, so it needs no certificates and
// the API server need not be able to call it. The manager has the same options, and each client has the same limits:
// those of controller-runtime, 20 calls a second with bursts of 30, since the module sets no others. The flag -unlimited
// takes these limits away, which the module's command cannot do.
package main

import (
	"flag"
	"log"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	schedulerpluginsv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
	"volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	kubeflowv1 "github.com/kubeflow/training-operator/pkg/apis/kubeflow.org/v1"
	"github.com/kubeflow/training-operator/pkg/config"
	controllerv1 "github.com/kubeflow/training-operator/pkg/controller.v1"
	"github.com/kubeflow/training-operator/pkg/controller.v1/common"
)

// One worker, as the command's --controller-threads has by default.
const controllerThreads = 1

func main() {
	unlimited := flag.Bool("unlimited", false, "do not limit how many calls the clients make")
	flag.Parse()
	if err := run(*unlimited); err != nil {
		log.Println(err)
		os.Exit(1)
	}
}

func run(unlimited bool) error {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(kubeflowv1.AddToScheme(scheme))
	utilruntime.Must(v1beta1.AddToScheme(scheme))
	utilruntime.Must(schedulerpluginsv1alpha1.AddToScheme(scheme))
	config.Config.PyTorchInitContainerImage = config.PyTorchInitContainerImageDefault
	config.Config.PyTorchInitContainerTemplateFile = config.PyTorchInitContainerTemplateFileDefault
	config.Config.PyTorchInitContainerMaxTries = config.PyTorchInitContainerMaxTriesDefault

	ctrl.SetLogger(zap.New(zap.UseDevMode(true)))
	client, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	if unlimited {
		client.QPS = -1
	}
	manager, err := ctrl.NewManager(client, ctrl.Options{
		Scheme:  scheme,
		Metrics: metricsserver.Options{BindAddress: "0"},
	})
	if err != nil {
		return err
	}
	setUp := controllerv1.SupportedSchemeReconciler[kubeflowv1.PyTorchJobKind]
	if err := setUp(manager, common.GenNonGangSchedulerSetupFunc(), controllerThreads); err != nil {
		return err
	}
	return manager.Start(ctrl.SetupSignalHandler())
}
