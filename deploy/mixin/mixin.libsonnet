// The alerts and the dashboard as a monitoring mixin (https://monitoring.mixins.dev), for stacks that are put together
// with jsonnet: import this file, and read prometheusAlerts and grafanaDashboards. Both are the files beside this
// folder, read when they are imported. An annotation runbook_url is a place in prometheus/RUNBOOK.md: give
// _config.runbookPrefix the address, up to its last slash, at which your copy is served.
{
  _config:: {
    runbookPrefix: '',
  },
  local prefix = self._config.runbookPrefix,

  grafanaDashboards+:: {
    'plumbline.json': import '../grafana/dashboards/plumbline.json',
  },

  prometheusAlerts+:: {
    groups+: [
      group { rules: [at_runbook(rule) for rule in group.rules] }
      for group in std.parseYaml(importstr '../prometheus/plumbline.rules.yml').groups
    ],
  },

  local at_runbook(rule) =
    rule
    + if std.objectHas(rule, 'annotations') && std.objectHas(rule.annotations, 'runbook_url')
    then { annotations+: { runbook_url: prefix + super.runbook_url } }
    else {},
}
