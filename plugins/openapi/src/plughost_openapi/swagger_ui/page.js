"use strict";

(() => {
    const root = document.getElementById("swagger-ui");
    const urls = root.dataset.sites.split(" ").map((site) => ({
        name: site,
        url: `/q/openapi?format=json&site=${encodeURIComponent(site)}`,
    }));
    SwaggerUIBundle({
        domNode: root,
        urls,
        deepLinking: true,
        tryItOutEnabled: true,
        validatorUrl: null, // nothing of the description leaves this host
        presets: [SwaggerUIBundle.presets.apis, SwaggerUIStandalonePreset],
        layout: "StandaloneLayout",
    });
})();
