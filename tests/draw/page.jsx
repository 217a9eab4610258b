// Draws a dashboard with Grafana's own components in its grid. The fragment of the page's
// URL names the dashboard.

import '@fontsource/inter/400.css';
import '@fontsource/inter/500.css';
import 'uplot/dist/uPlot.min.css';

import {
  ThemeContext,
  createTheme,
  dateTime,
  dateTimeFormat,
  formattedValueToString,
  getValueFormat,
  reduceField,
} from '@grafana/data';
import { BigValue, GlobalStyles, PanelChrome, TimeSeries } from '@grafana/ui';
import { TableNG } from '@grafana/ui/unstable';
import { createRoot } from 'react-dom/client';

import answers from 'answers';
import { TIME_ZONE, framesOf } from './frames.js';

// Grafana's grid: 24 columns, rows of 30 pixels, 8 between them.
const WIDTH = 1280;
const GAP = 8;
const COLUMN = (WIDTH - GAP) / 24;
const ROW = 30 + GAP;
const HEAD = 48;

const theme = createTheme({ colors: { mode: 'light' } });
const dashboard = answers.dashboards[location.hash.slice(1)];
const from = dateTime(answers.from * 1000);
const to = dateTime(answers.to * 1000);
const timeRange = { from, to, raw: { from, to } };

const CONTENT = {
  timeseries: ({ panel, frames, width, height }) => (
    <TimeSeries
      frames={frames}
      width={width}
      height={height}
      timeRange={timeRange}
      timeZone={TIME_ZONE}
      legend={panel.options.legend}
    />
  ),
  stat: ({ panel, frames, width, height }) => {
    const field = frames[0].fields[1];
    const [calc] = panel.options.reduceOptions.calcs;
    const value = field.display(reduceField({ field, reducers: [calc] })[calc]);
    const { colorMode, graphMode, textMode } = panel.options;
    return <BigValue {...{ theme, width, height, value, colorMode, graphMode, textMode }} />;
  },
  table: ({ panel, frames, width, height }) => (
    <TableNG
      data={frames[0]}
      width={width}
      height={height}
      sortBy={panel.options.sortBy}
      enableVirtualization={false}
      contentAwareWidthsEnabled
    />
  ),
  heatmap: Heatmap,
};

// Grafana's library has no heatmap. A row for each bucket of a histogram, a cell for each
// point in time, darker where more values fell into the bucket.
function Heatmap({ frames, width, height }) {
  const [left, below] = [64, 20];
  const bound = ({ fields }) => Number(fields[1].labels.le.replace('+Inf', 'Infinity'));
  const sums = [...frames].sort((one, other) => bound(one) - bound(other));
  const times = sums[0].fields[0].values;
  // Prometheus' buckets contain the values of the buckets below them.
  const counts = sums.map(({ fields }, row) =>
    fields[1].values.map((value, point) => Math.max(0, value - (sums[row - 1]?.fields[1].values[point] ?? 0)))
  );
  const most = Math.max(...counts.flat());
  const [cell, row] = [(width - left) / times.length, (height - below) / sums.length];
  const text = { fill: theme.colors.text.secondary, fontSize: 11 };
  const seconds = getValueFormat('s');
  const minute = (time) => Math.floor(time / 60000);
  const ticks = times.map((time, point) => [time, point]).filter(([time, point]) => minute(time) > minute(times[point - 1]));
  return (
    <svg width={width} height={height}>
      {sums.map((frame, at) => (
        <text key={at} x={left - 6} y={height - below - (at + 0.3) * row} textAnchor="end" {...text}>
          {Number.isFinite(bound(frame)) ? formattedValueToString(seconds(bound(frame))) : '+Inf'}
        </text>
      ))}
      {counts.flatMap((values, at) =>
        values.map((value, point) => (
          <rect
            key={`${at}-${point}`}
            x={left + point * cell}
            y={height - below - (at + 1) * row}
            width={cell}
            height={row}
            fill={theme.visualization.getColorByName('dark-orange')}
            fillOpacity={most > 0 ? Math.sqrt(value / most) : 0}
          />
        ))
      )}
      {ticks.map(([time, point]) => (
        <text key={time} x={left + point * cell} y={height - 4} textAnchor="middle" {...text}>
          {dateTimeFormat(time, { format: 'HH:mm', timeZone: TIME_ZONE })}
        </text>
      ))}
    </svg>
  );
}

function Note({ width, height, children }) {
  const style = { width, height, display: 'grid', placeItems: 'center', color: theme.colors.text.secondary };
  return <div style={style}>{children}</div>;
}

function Panel({ panel, frames }) {
  const { x, y, w, h } = panel.gridPos;
  const [width, height] = [w * COLUMN - GAP, h * ROW - GAP];
  const style = { position: 'absolute', left: GAP + x * COLUMN, top: HEAD + y * ROW, width, height };
  if (panel.type === 'row') {
    return (
      <h2 data-panel style={{ ...style, ...theme.typography.h5, margin: 0, lineHeight: `${height}px` }}>
        {panel.title}
      </h2>
    );
  }
  const Content = CONTENT[panel.type];
  return (
    <div data-panel style={style}>
      <PanelChrome title={panel.title} width={width} height={height}>
        {(width, height) =>
          frames.length > 0 ? <Content {...{ panel, frames, width, height }} /> : <Note {...{ width, height }}>No data</Note>
        }
      </PanelChrome>
    </div>
  );
}

async function draw() {
  const drawn = await Promise.all(
    dashboard.panels.map(async (panel) => ({
      panel,
      frames: panel.type === 'row' ? [] : await framesOf(panel, answers, theme),
    }))
  );
  const bottom = Math.max(...dashboard.panels.map(({ gridPos }) => gridPos.y + gridPos.h));
  const root = document.createElement('main');
  document.body.append(root);
  document.title = dashboard.title;
  createRoot(root).render(
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      <h1 style={{ ...theme.typography.h3, margin: 0, padding: '12px 0' }}>{dashboard.title}</h1>
      {drawn.map(({ panel, frames }) => (
        <Panel key={panel.id} panel={panel} frames={frames} />
      ))}
    </ThemeContext.Provider>
  );
  return {
    panels: dashboard.panels.length,
    height: HEAD + bottom * ROW,
    empty: drawn.filter(({ panel, frames }) => panel.type !== 'row' && frames.length === 0).map(({ panel }) => panel.title),
  };
}

// Once all panels are drawn, the result is written to the document for the script that
// takes the picture. A broken panel breaks the whole page.
draw().then(({ panels, height, empty }) => {
  const wait = () => {
    if (document.querySelectorAll('[data-panel]').length === panels) {
      Object.assign(document.documentElement.dataset, { height, empty: empty.join(', ') });
    } else {
      setTimeout(wait, 50);
    }
  };
  wait();
});
