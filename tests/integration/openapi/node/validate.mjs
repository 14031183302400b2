// Reads {components, pairs: [[schema, value, where], ...]} and writes what of it ajv refuses, as JSON.
import { readFileSync } from "node:fs";
import Ajv2020 from "ajv/dist/2020.js";
import addFormats from "ajv-formats";

const { components, pairs } = JSON.parse(readFileSync(0, "utf8"));
const ajv = new Ajv2020.default({ strict: false, allErrors: true });
addFormats.default(ajv);
const refused = [];
for (const [schema, value, where] of pairs) {
  const validate = ajv.compile({ ...schema, components });
  if (!validate(value)) refused.push([where, value, ajv.errorsText(validate.errors)]);
}
console.log(JSON.stringify(refused));
