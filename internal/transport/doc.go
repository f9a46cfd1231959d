// Package transport makes the HTTP clients and the dialers that origins use.
//
// Only this package defines which keys of a Secret hold what (reference A9 "Auth Secret
// keys", A10 "TLS secret keys"):
//
//	basic auth            username, password
//	bearer token          bearerToken (not together with basic auth)
//	TLS, git              ca.crt (or caFile), tls.crt and tls.key
//	TLS, certSecretRef    the same, and certFile and keyFile when the newer keys are absent
//	PkgRepository         username and password (both), and, deprecated, caFile, certFile and keyFile
//	ssh                   identity, known_hosts, password (passphrase of identity)
//	proxySecretRef        address, username, password
//	registries            .dockerconfigjson (or .dockercfg), see package oci; of charts also username, password
//	S3                    accesskey, secretkey (both)
//	sts, ldap             username, password (both)
//	sts, webidentity      token, roleArn
//	provider github       githubAppID, githubAppInstallationID or githubAppInstallationOwner,
//	                      githubAppPrivateKey, githubAppBaseURL
//	buckets of Azure      tenantId, clientId, clientSecret, clientCertificate,
//	                      clientCertificatePassword, clientCertificateSendChain,
//	                      authorityHost, accountKey, sasKey
//
// A key that is present with an empty value counts as absent. A Secret that
// cannot be used gives a [*SecretError], which names the Secret, the key and
// what is wrong, and never a value.
//
// # Rules
//
//   - Credentials are bound to an origin: scheme, host and port. No other origin receives
//     an Authorization header or a client certificate, nor does the origin itself once a
//     redirect has led through another one.
//   - At most 10 redirects are followed, none from https to http. User information in the
//     target of a redirect is dropped.
//   - TLS is at least version 1.2. A CA from a Secret is added to the system's, and is
//     trusted for proxies too.
//   - Proxies come from the configuration only; the environment is not read.
//   - A server cannot lead us into a network narrower than its own, by a redirect or by its
//     content: see [NetworkGuard]. Each address is judged when the connection is made,
//     after the lookup. Behind a proxy the spelling of the host is judged, and a host that
//     is not ASCII counts as the narrowest.
//   - Each phase has a time limit: connecting, TLS handshake, response header. Only the
//     context of the request limits how long a body takes.
package transport
