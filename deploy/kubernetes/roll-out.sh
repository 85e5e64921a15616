#!/bin/sh
# roll-out.sh DIRECTORY: deploy an overlay. Migrations that only add objects run first, and then the
# new replicas start. The other migrations run last, because old replicas still use what they remove.
set -eu

overlay=${1:?specify the directory of an overlay, such as overlays/production}
namespace=$(kubectl kustomize "$overlay" | sed -n 's/^  namespace: //p' | head -n 1)
: "${namespace:?the kustomization of $overlay does not set a namespace}"
component=app.kubernetes.io/component

apply() { kubectl apply -k "$overlay" -l "app.kubernetes.io/name=cronledger,$component in ($1)"; }

migrate() {
    kubectl -n "$namespace" delete job "cronledger-$1" --ignore-not-found
    apply "$1"
    kubectl -n "$namespace" wait --for=condition=complete --timeout=15m "job/cronledger-$1"
}

apply configuration
migrate migrate-pre
apply "replica, page, metrics"
for deployment in replica page metrics; do
    kubectl -n "$namespace" rollout status --timeout=15m "deployment/cronledger-$deployment"
done
# A pod that drains is no longer part of the Deployment, so `rollout status` does not wait for it.
draining='{.items[?(@.metadata.deletionTimestamp)].metadata.name}'
tries=450
while [ -n "$(kubectl -n "$namespace" get pods -l "$component=replica" -o jsonpath="$draining")" ]; do
    tries=$((tries - 1))
    if [ "$tries" = 0 ]; then
        echo "an old replica still drains after 15 minutes; delete its pod, and run $0 again" >&2
        exit 1
    fi
    sleep 2
done
migrate migrate-post
