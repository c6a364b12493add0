#!/bin/sh
# deploy/ without a cluster: what kustomize makes of the manifests against Kubernetes' schemas, and HAProxy's own check of
# both configurations. Needs kubectl, haproxy and kubernetes-validate (PyPI). Nothing is started.
set -eu
cd "$(dirname "$0")/../.."
out=$(mktemp)
trap 'rm -f "$out"' EXIT
kubectl kustomize deploy/kubernetes >"$out"
kubernetes-validate --strict --quiet "$out"
haproxy -c -f deploy/haproxy.cfg
SERVERS=server.test:8080 haproxy -c -f deploy/kubernetes/haproxy.cfg
