/** Texts of the charts. Only `ui/plot.js` uses them, so any page can show charts without the other catalogues. */

export const plotTexts = {
  loading: 'Loading the chart …',
  failed:
    'The chart script could not be loaded ({reason}). The numbers below are complete. Check that the server is running, then try again.',
  again: 'Try again',
  controls: 'Chart',
  zoomIn: 'Zoom in',
  zoomOut: 'Zoom out',
  reset: 'Reset zoom',
  export: 'Save',
  png: 'PNG',
  svg: 'SVG',
  csv: 'CSV',
  json: 'JSON',
  exportHint: {
    png: 'Save the chart as PNG',
    svg: 'Save the chart as SVG',
    csv: 'Save all numbers as CSV',
    json: 'Save all numbers as JSON',
  },
  numbers: 'Numbers',
  tableNote: '{shown} of {all} rows, evenly spaced. The CSV has all of them.',
  notDrawn: 'There is no chart to save yet.',
  units: ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'],
};
