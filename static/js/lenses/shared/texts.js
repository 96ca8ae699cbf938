/** The part of the catalogue that lenses use. */
import { strings } from '../../strings/main.js';

export const texts = strings.lenses;
