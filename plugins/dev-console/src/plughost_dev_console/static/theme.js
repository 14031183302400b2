// Apply the chosen theme before the first paint.
"use strict";

document.documentElement.dataset.theme = localStorage.getItem("plughost-theme") ?? "system";
