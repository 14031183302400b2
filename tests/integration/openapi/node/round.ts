// The whole round on every service, by types that openapi-typescript made of the descriptions, with no change by hand.
// Compiled with strict settings; prints what it found, or fails.
import createClient, { type Client } from "openapi-fetch";
import type { paths as Library } from "./library.js";
import type { paths as Main } from "./main.js";

function given<T>(found: { data?: T; error?: unknown; response: Response }): T {
  if (found.error !== undefined || found.data === undefined) {
    throw new Error(`${found.response.status} ${found.response.url}: ${JSON.stringify(found.error)}`);
  }
  return found.data;
}

function isEqual(found: unknown, wanted: unknown): void {
  if (JSON.stringify(found) !== JSON.stringify(wanted)) {
    throw new Error(`${JSON.stringify(found)} is not ${JSON.stringify(wanted)}`);
  }
}

async function catalogs(api: Client<Main>): Promise<void> {
  const body = { sku: "ts/ 1", name: "Tea", price: 4.95, stock: 2 };
  const path = { params: { path: { sku: body.sku } } };
  isEqual(given(await api.POST("/api/v1/products", { body })).inStock, true);
  isEqual(given(await api.GET("/api/v1/products")).length > 0, true);
  isEqual(given(await api.POST("/api/v2/products", { body })).price, 4.95);
  isEqual(given(await api.GET("/api/v2/products/{sku}", path)).sku, body.sku);
  isEqual((await api.DELETE("/api/v2/products/{sku}", path)).response.status, 204);
  const stored = given(await api.POST("/api/v3/products", { body }));
  isEqual(given(await api.GET("/api/v3/products/{sku}", path)).id, stored.id);
  isEqual(given(await api.GET("/api/v4/products/{sku}", path)), body);
  isEqual((await api.DELETE("/api/v4/products/{sku}", path)).response.status, 204);
}

async function crud(api: Client<Main>): Promise<void> {
  const body = { sku: "ts-crud", name: "Pot", price: 19.99, stock: 0 };
  const made = given(await api.POST("/products", { body, headers: { accept: "application/json" } }));
  const path = { params: { path: { product_id: made.id } } };
  isEqual((await api.PUT("/products/{product_id}", { ...path, body: { ...body, stock: 3 } })).response.status, 204);
  const page = given(await api.GET("/products", { params: { query: { sku: ["ts-crud"], size: 5 } } }));
  isEqual(Array.isArray(page) && page.length, 1); // else it were HAL
  isEqual(given(await api.GET("/products/count", { params: { query: { sku: ["ts-crud"] } } })), 1);
  isEqual((await api.DELETE("/products/{product_id}", path)).response.status, 204);
}

async function others(api: Client<Main>): Promise<void> {
  const made = given(await api.POST("/messages", { body: { content: "Hello from TypeScript" } }));
  const path = { params: { path: { message_id: made.id } } };
  isEqual(given(await api.GET("/messages/{message_id}", path)).content, "Hello from TypeScript");
  isEqual((await api.DELETE("/messages/{message_id}", path)).response.status, 204);
  const gone = await api.GET("/messages/{message_id}", path);
  isEqual(gone.response.status, 404);
  isEqual(given(await api.PUT("/users/profile", { body: { displayName: "Alex" } })).data.displayName, "Alex");
  isEqual(given(await api.GET("/users/profile")).status, "success");
  isEqual(given(await api.GET("/q/health")).status, "UP");
}

async function library(api: Client<Library>): Promise<void> {
  const basic = Buffer.from("admin@example.org:admin").toString("base64");
  const headers = { Authorization: `Basic ${basic}` };
  const token = given(await api.GET("/mylibrary/setup/login", { headers, parseAs: "text" }));
  const bearer = { Authorization: `Bearer ${token}` };
  const identity = given(await api.GET("/mylibrary/setup/secured/admin", { headers: bearer }));
  isEqual([identity.email, identity.roles], ["admin@example.org", ["admin"]]);
  isEqual((await api.DELETE("/mylibrary/setup/login", { headers: bearer })).response.status, 204);
}

const [main = "", secured = ""] = process.argv.slice(2);
const api = createClient<Main>({ baseUrl: main });
await catalogs(api);
await crud(api);
await others(api);
await library(createClient<Library>({ baseUrl: secured }));
console.log("all rounds done");
