# syntax=docker/dockerfile:1
# The operator, and the init container of every job, which copies the worker-side library out of this image.
FROM python:3.11-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE requirements.lock ./
COPY events events
COPY rendezvous rendezvous
COPY operator operator
# The environment has no pip of its own, so that the final image has none either.
RUN python -m venv --without-pip /opt/elasticjob \
 && pip --python /opt/elasticjob/bin/python install --no-cache-dir \
      --constraint requirements.lock ".[operator,etcd]"

FROM python:3.11-slim
ARG VERSION=0.1.0
LABEL org.opencontainers.image.title="elasticjob" \
      org.opencontainers.image.description="Elastic distributed training on Kubernetes, with the rendezvous hosted by the operator" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
# Nothing is installed at run time.
RUN pip uninstall --yes --no-input --root-user-action ignore setuptools wheel pip
COPY --from=build /opt/elasticjob /opt/elasticjob
ENV PATH=/opt/elasticjob/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
EXPOSE 8443 8080
ENTRYPOINT ["python", "-m", "elasticjob.operator"]
