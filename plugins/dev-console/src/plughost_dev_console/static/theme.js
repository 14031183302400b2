// Before anything is drawn: the theme that somebody chose.
"use strict";

document.documentElement.dataset.theme = localStorage.getItem("plughost-theme") ?? "system";
