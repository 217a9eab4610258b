// Converts answers of Prometheus to data frames as Grafana's data source does, and
// applies the panel's transformations and field configuration.

import {
  FieldType,
  Registry,
  applyFieldOverrides,
  cacheFieldDisplayNames,
  createDataFrame,
  identityOverrideProcessor,
  standardTransformers,
  standardTransformersRegistry,
  thresholdsOverrideProcessor,
  transformDataFrame,
} from '@grafana/data';
import { lastValueFrom } from 'rxjs';

export const TIME_ZONE = 'utc';

standardTransformersRegistry.setInit(() =>
  [standardTransformers.mergeTransformer, standardTransformers.organizeFieldsTransformer].map((one) => ({
    id: one.id,
    name: one.name,
    transformation: async () => one,
  }))
);

// Field options that the dashboards set. Grafana's panels bring such a list with them,
// but Grafana's library does not contain it.
const property = (path, isCustom, process = identityOverrideProcessor) => ({
  id: isCustom ? `custom.${path}` : path,
  name: path,
  path,
  isCustom,
  process,
  shouldApply: () => true,
});
const PROPERTIES = new Registry(() => [
  ...['unit', 'min', 'displayName', 'color'].map((path) => property(path, false)),
  property('thresholds', false, thresholdsOverrideProcessor),
  ...['fillOpacity', 'lineWidth', 'showPoints', 'stacking', 'thresholdsStyle'].map((path) => property(path, true)),
]);

/** The frames of a panel, ready to be drawn; none where nothing was answered. */
export async function framesOf(panel, answers, theme) {
  const asked = panel.targets.filter((target) => target.answer.length > 0);
  if (asked.length === 0) {
    return [];
  }
  const isTable = panel.type === 'table';
  const frames = isTable
    ? panel.targets.map((target) => table(target, panel.targets.length > 1))
    : asked.flatMap((target) => target.answer.map((one) => series(target, one, answers)));
  const data = await lastValueFrom(transformDataFrame(panel.transformations, frames));
  const { defaults, overrides } = panel.fieldConfig;
  // The panel's default: a colour per series.
  const color = { mode: panel.type === 'timeseries' ? 'palette-classic' : 'thresholds' };
  const ready = applyFieldOverrides({
    data,
    fieldConfig: { defaults: { color, ...defaults }, overrides },
    fieldConfigRegistry: PROPERTIES,
    replaceVariables: (text) => text,
    theme,
    timeZone: TIME_ZONE,
  });
  cacheFieldDisplayNames(ready);
  return ready;
}

/** One series; where it has no point, null, so that no line leads over it. */
function series(target, { metric, value, values = [value] }, { from, to, step }) {
  const known = new Map(values);
  const points = Math.floor((to - from) / step) + 1;
  const times = target.instant ? [to] : Array.from({ length: points }, (_, point) => from + point * step);
  return createDataFrame({
    refId: target.refId,
    fields: [
      { name: 'Time', type: FieldType.time, values: times.map((time) => time * 1000) },
      {
        name: 'Value',
        type: FieldType.number,
        values: times.map((time) => number(known.get(time))),
        labels: metric,
        config: { displayNameFromDS: legend(target.legendFormat, metric) },
      },
    ],
  });
}

/** A row for each series, a column for each label. */
function table({ refId, answer }, isOneOfMany) {
  const labels = [...new Set(answer.flatMap(({ metric }) => Object.keys(metric)))].sort();
  const column = (name, type, of) => ({ name, type, values: answer.map(of), config: {} });
  return createDataFrame({
    refId,
    fields: [
      column('Time', FieldType.time, ({ value }) => value[0] * 1000),
      ...labels.map((label) => column(label, FieldType.string, ({ metric }) => metric[label])),
      column(isOneOfMany ? `Value #${refId}` : 'Value', FieldType.number, ({ value }) => number(value[1])),
    ],
  });
}

/** A sample's value, which Prometheus writes as text; NaN and infinities are none. */
function number(text) {
  const value = Number.parseFloat(text);
  return Number.isFinite(value) ? value : null;
}

function legend(format, labels) {
  return format.replace(/{{\s*(\w+)\s*}}/g, (_, name) => labels[name] ?? '').trim() || undefined;
}
