/** What charts say: `ui/plot.js` and nothing else speaks with it, so that a page of its own needs no other catalogue for them. */

export const plotTexts = {
  loading: 'The chart is being prepared.',
  failed: 'The charts’ script could not be loaded ({reason}). The numbers below are complete; check that the server runs, then try again.',
  again: 'Try again',
  controls: 'Chart',
  zoomIn: 'Zoom in', zoomOut: 'Zoom out', reset: 'Whole chart',
  export: 'Save', png: 'PNG', svg: 'SVG', csv: 'CSV', json: 'JSON',
  exportHint: { png: 'Save the chart as a PNG picture', svg: 'Save the chart as an SVG drawing', csv: 'Save all numbers as CSV', json: 'Save all numbers as JSON' },
  numbers: 'Numbers',
  tableNote: '{shown} of {all} rows, evenly spaced; the CSV has all of them.',
  notDrawn: 'There is no chart to save yet.',
  units: ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'],
};
