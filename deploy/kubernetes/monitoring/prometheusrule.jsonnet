// The alerts of ../../prometheus as the Prometheus operator takes them:
//   jsonnet deploy/kubernetes/monitoring/prometheusrule.jsonnet | kubectl apply -f -
// The runbook has an address where `--tla-str runbooks=https://runbooks.example.org/` gives it one.
local mixin = import '../../mixin/mixin.libsonnet';

function(runbooks='') {
  apiVersion: 'monitoring.coreos.com/v1',
  kind: 'PrometheusRule',
  metadata: {
    name: 'plumblined',
    namespace: 'plumbline',
    labels: { 'app.kubernetes.io/name': 'plumblined' },
  },
  spec: (mixin { _config+:: { runbookPrefix: runbooks } }).prometheusAlerts,
}
