/** What the bar of the pages beside the main one says, in the shape of main.js. */

export const pagesTexts = {
  theme: 'Theme: {name}',
  themes: { dark: 'dark', light: 'light', system: 'as the system' },
  themeHint: 'Change the theme (T)',
  projector: 'Projector',
  projectorHint: 'Larger texts, for a room (P)',
};
