// Light and dark: as the system has it until the button says otherwise; charts draw their lines so that they can be seen.
import { stored } from "./dom.js";

const system = matchMedia("(prefers-color-scheme: dark)");

export const isDark = () => (document.documentElement.dataset.theme || (system.matches ? "dark" : "light")) === "dark";

export function applyTheme(name = stored.read("theme", "")) {
  if (name) document.documentElement.dataset.theme = name;
  else delete document.documentElement.dataset.theme;
  document.dispatchEvent(new Event("themechange"));
}

export function switchTheme() {
  const name = isDark() ? "light" : "dark";
  stored.write("theme", name);
  applyTheme(name);
}

system.addEventListener("change", () => document.dispatchEvent(new Event("themechange")));

export const styleColor = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function luminance(channels) {
  const [red, green, blue] = channels.map((value) => (value <= 10 ? value / 3294 : ((value / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function hueOf(channels) {
  const [most, least] = [Math.max(...channels), Math.min(...channels)];
  const [red, green, blue] = channels.map((value) => (value - least) / (most - least || 1));
  const hue = red === 1 ? green - blue : green === 1 ? 2 + blue - red : 4 + red - green;
  const lightness = (most + least) / 510;
  return [60 * ((hue + 6) % 6), (most - least) / 255 / (1 - Math.abs(2 * lightness - 1) || 1), lightness];
}

function channelsOf(hue, saturation, lightness) {
  const reach = saturation * Math.min(lightness, 1 - lightness);
  const part = (place) => (place + hue / 30) % 12;
  return [0, 8, 4].map((place) => Math.round(255 * (lightness - reach * Math.max(-1, Math.min(part(place) - 3, 9 - part(place), 1)))));
}

// A line's colour (#rrggbb) on the page: on a dark ground it is made lighter, in its own hue, until its contrast is 4 to 1.
export function onGround(color) {
  if (!isDark() || !/^#[0-9a-f]{6}$/i.test(color)) return color;
  let channels = [1, 3, 5].map((place) => parseInt(color.slice(place, place + 2), 16));
  const ground = 0.012;
  const [hue, saturation, lightness] = hueOf(channels);
  if (lightness === 0) return "#f5f5f5"; // black becomes white: the grey that its contrast asks for is a method's colour, too
  for (let light = lightness; light < 0.95 && (luminance(channels) + 0.05) / (ground + 0.05) < 4; light += 0.03) {
    channels = channelsOf(hue, saturation, light);
  }
  return `#${channels.map((value) => value.toString(16).padStart(2, "0")).join("")}`;
}

// From low (0) to high (1): viridis at nine places, which colour-blind readers can follow.
const VIRIDIS = ["#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725"];

export function ramp(share) {
  const darkest = isDark() ? 0.25 : 0; // the dark end would vanish on a dark ground
  const place = (darkest + (1 - darkest) * Math.min(Math.max(share, 0), 1)) * (VIRIDIS.length - 1);
  const from = Math.min(Math.floor(place), VIRIDIS.length - 2);
  const mix = [1, 3, 5].map((start) => {
    const [one, other] = [VIRIDIS[from], VIRIDIS[from + 1]].map((color) => parseInt(color.slice(start, start + 2), 16));
    return Math.round(one + (place - from) * (other - one));
  });
  return `rgb(${mix.join(",")})`;
}
