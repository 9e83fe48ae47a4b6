"use strict";
// Not a module: it runs before anything is drawn, so that no page flashes in the other theme.
try {
  const theme = localStorage.getItem("kbqa.theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Without storage the system's theme stays.
}
