// An identity provider for tests: the npm package `oidc-provider`, whose users log in and consent by themselves.
//
//   oidc_provider.mjs     prints its issuer, then serves until its stdin is closed
//
// Access tokens are JWTs for whichever server a client names, signed with ES256. Clients register themselves. The user is
// `alice`, who consents to whatever a client asks for. OIDC_PROVIDER_FROM is a file beside the node_modules with the package.

import { createServer } from "node:http";
import { createRequire } from "node:module";
import { generateKeyPairSync } from "node:crypto";

const require = createRequire(process.env.OIDC_PROVIDER_FROM);
const { Provider } = await import(require.resolve("oidc-provider"));

const server = createServer();
await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
const issuer = `http://127.0.0.1:${server.address().port}`;
const { privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });

const provider = new Provider(issuer, {
  jwks: { keys: [{ ...privateKey.export({ format: "jwk" }), use: "sig", alg: "ES256", kid: "one" }] },
  scopes: ["openid", "offline_access", "hotcell:use", "hotcell:admin"],
  clientDefaults: { id_token_signed_response_alg: "ES256" },
  cookies: { keys: ["only for tests"] },
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
  interactions: { url: (_, interaction) => `/interaction/${interaction.uid}` },
  ttl: { AccessToken: 600, Grant: 600, Interaction: 600, Session: 600, AuthorizationCode: 60, IdToken: 600 },
  features: {
    devInteractions: { enabled: false },
    registration: { enabled: true },
    resourceIndicators: {
      enabled: true,
      useGrantedResource: () => true,
      getResourceServerInfo: (_, indicator) => {
        return {
          scope: "hotcell:use hotcell:admin",
          audience: indicator,
          accessTokenFormat: "jwt",
          jwt: { sign: { alg: "ES256" } },
        };
      },
    },
  },
});

async function consent(details) {
  const grant = new provider.Grant({ accountId: details.session.accountId, clientId: details.params.client_id });
  grant.addOIDCScope(details.params.scope);
  grant.addResourceScope(details.params.resource, details.params.scope);
  return { consent: { grantId: await grant.save() } };
}

async function interact(request, response) {
  const details = await provider.interactionDetails(request, response);
  const result = details.prompt.name === "login" ? { login: { accountId: "alice" } } : await consent(details);
  await provider.interactionFinished(request, response, result, { mergeWithLastSubmission: true });
}

const serve = provider.callback();
server.on("request", (request, response) => {
  if (!request.url.startsWith("/interaction/")) return serve(request, response);
  interact(request, response).catch((error) => {
    console.error(error);
    response.writeHead(500).end(String(error));
  });
});

console.log(issuer);
process.stdin.resume().on("end", () => process.exit(0));
