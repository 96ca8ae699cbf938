/** Texts of the bar on the calculator and traces pages. */

export const pagesTexts = {
  theme: 'Theme: {name}',
  themes: { dark: 'dark', light: 'light', system: 'system' },
  themeHint: 'Change the theme (T)',
  projector: 'Projector',
  projectorHint: 'Enlarge all text for a projector (P)',
};
