// Package notation verifies signatures of the Notary Project on artifacts in
// registries: the value notation of spec.verify.provider (reference A11).
//
// # Trust
//
// The Secret that spec.verify.secretRef names has a trust policy, version 1.0,
// under the key trustpolicy.json, and certificates, PEM or
// DER, under keys that end in .crt or .pem. All of them
// are in every trust store, whatever its type and name: the Secret is the
// trust store. So an authority for signers can also certify a timestamping
// authority, where the policy names a store of type tsa; the extended key
// usages of certificates keep the two apart.
//
// Of the statements of the policy that one counts which has HOST[:PORT]/PATH of
// the repository among its registryScopes, or else the one with the scope "*";
// when there is none, verification fails. Statements at level skip may name
// stores and identities, which count for nothing. Nothing else is read: no
// file, no environment, no configuration of the notation command. No
// verification plugin is run; a signature that asks for one is refused.
//
// # Signatures
//
// A signature is a manifest that refers to the subject, with the artifact type
// application/vnd.cncf.notary.signature and one envelope, JWS or COSE. It counts
// for the subject whose media type, size and digest it names, and for no other.
// The first 32 signatures are tried in the order of the registry, and the first
// that holds is enough. Manifest and envelope have at most 256 KiB each, a chain
// at most 16 certificates, an RSA key in it or in the Secret at most 8192 bits: a
// longer one would take minutes to check. A critical attribute that is
// not known here makes a signature void.
//
// # Levels
//
// What the level strict enforces, permissive and audit only look at, as the
// Notary Project defines it. The level is the one in [source.Verification], and
// its message names each check that is not enforced and what it found, so that
// an expired signature does not pass unseen. A verification is ignored unless
// the level enforces authenticity: at skip, at audit, and where an override has
// it logged, whoever signed. Otherwise what anybody may push would decide
// whether an artifact counts as verified.
//
// # Revocation
//
// Where the level does not skip it, revocation is checked by OCSP and then by
// CRL at the addresses that the certificates name, through the proxy of the
// spec, each request within 5 seconds and nothing kept for the next
// verification. It is not checked of certificates that are not trusted, for
// then a stranger would say which addresses are asked. Where enforced, a
// signature does not hold without an answer; but that is no refusal: the error
// does not wrap [source.ErrVerification]. Certificates that name no address are
// not revocable.
package notation
