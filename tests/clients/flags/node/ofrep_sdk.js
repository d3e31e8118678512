// OpenFeature's SDK with its provider for remote evaluation: `ofrep_sdk.js URL TOKEN FLAG APPLICATION`.
import { OFREPProvider } from "@openfeature/ofrep-provider";
import { OpenFeature } from "@openfeature/server-sdk";
import { watch } from "./watch.js";

const [url, token, flag] = process.argv.slice(2);
await OpenFeature.setProviderAndWait(new OFREPProvider({ baseUrl: url, headers: [["Authorization", `Bearer ${token}`]] }));
const client = OpenFeature.getClient();
await watch(() => client.getBooleanValue(flag, false, { targetingKey: "7" }), () => OpenFeature.close());
