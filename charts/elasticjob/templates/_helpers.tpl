{{/* Names are cut at 50 characters, so that the longest suffix still gives a legal Service name. */}}
{{- define "elasticjob.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Cluster-wide objects carry the namespace too: two releases of one name in two namespaces must not share them. */}}
{{- define "elasticjob.clusterName" -}}
{{- printf "%s:%s" .Release.Namespace (include "elasticjob.fullname" .) -}}
{{- end -}}

{{- define "elasticjob.selectorLabels" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end -}}

{{/* Labels and annotations of an object: (dict "root" $ "labels" {…} "annotations" {…}), the last two being additions. */}}
{{- define "elasticjob.metadata" -}}
{{- $root := .root -}}
labels:
  {{- include "elasticjob.selectorLabels" $root | nindent 2 }}
  app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
  app.kubernetes.io/managed-by: {{ $root.Release.Service }}
  helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
  {{- with merge (deepCopy (default dict .labels)) $root.Values.commonLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (deepCopy (default dict .annotations)) $root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "elasticjob.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "elasticjob.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "elasticjob.rendezvousService" -}}
{{- .Values.rendezvous.service.name -}}
{{- end -}}

{{/* The one image there is: the operator's own, which job pods also run as their init container. */}}
{{- define "elasticjob.image" -}}
{{- $registry := default .Values.image.registry .Values.global.imageRegistry -}}
{{- $name := .Values.image.repository -}}
{{- if $registry -}}
{{- $name = printf "%s/%s" (trimSuffix "/" $registry) $name -}}
{{- end -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" $name .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{/* Names of all pull Secrets, as a comma-separated list. */}}
{{- define "elasticjob.pullSecretNames" -}}
{{- $names := list -}}
{{- range concat .Values.global.imagePullSecrets .Values.imagePullSecrets -}}
{{- $names = append $names .name -}}
{{- end -}}
{{- $names | uniq | join "," -}}
{{- end -}}

{{/* Namespaces that a namespaced operator serves, as a comma-separated list; empty when it serves all. */}}
{{- define "elasticjob.watchNamespaces" -}}
{{- if eq .Values.scope "namespace" -}}
{{- default (list .Release.Namespace) .Values.watchNamespaces | uniq | join "," -}}
{{- end -}}
{{- end -}}

{{/* What the operator may do where jobs are. */}}
{{- define "elasticjob.jobRules" -}}
- apiGroups: [elasticjob.dev]
  resources: [elasticjobs]
  verbs: [get, list, watch, delete]
- apiGroups: [elasticjob.dev]
  resources: [elasticjobs/status]
  verbs: [update]
# Lets the children name their job as a blocking owner (admission plugin OwnerReferencesPermissionEnforcement).
- apiGroups: [elasticjob.dev]
  resources: [elasticjobs/finalizers]
  verbs: [update]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, delete]
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, watch, create]
# Keeps evictions from taking a job below its minimum.
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, update, delete]
# The state of each rendezvous.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, create, update, delete]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end -}}
