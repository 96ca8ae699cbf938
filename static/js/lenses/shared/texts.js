/** The part of the catalogue that the lenses speak with. */
import { strings } from '../../strings/main.js';

export const texts = strings.lenses;
