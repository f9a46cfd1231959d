// Package notation verifies signatures of the Notary Project on artifacts in
// registries: the value notation of spec.verify.provider (reference A11).
//
// # Trust
//
// The Secret that spec.verify.secretRef names has a trust policy, version 1.0, under
// the key trustpolicy.json, and certificates, PEM or DER, under keys that end in .crt
// or .pem. Every trust store, whatever its type and name, contains all these
// certificates. So if the policy names a store of type tsa, an authority for signers
// can also certify a timestamping authority; the extended key usages of certificates
// distinguish the two.
//
// The statement of the policy whose registryScopes contain HOST[:PORT]/PATH of the
// repository applies, or else the one with the scope "*"; if there is none,
// verification fails. Stores and identities in a statement at level skip are ignored.
// Files, environment variables and the configuration of the notation command are not
// read. Verification plugins are not run; a signature that requires one is refused.
//
// # Signatures
//
// A signature is a manifest that refers to the subject, with the artifact type
// application/vnd.cncf.notary.signature and one envelope, JWS or COSE. It is valid only
// for the subject with the media type, size and digest that it names. The first 32
// signatures are checked in the order of the registry, and the first valid one is
// sufficient. Manifest and envelope have at most 256 KiB each, a chain at most 16
// certificates, an RSA key in it or in the Secret at most 8192 bits, because a longer
// key would take minutes to check. A signature with an unknown critical attribute is
// refused.
//
// # Levels
//
// Checks that the level strict enforces are only logged by permissive and audit, as the
// Notary Project defines. [source.Verification] contains the level, and its message
// names each check that is not enforced and its result, so that an expired signature is
// visible. A verification is marked as ignored unless the level enforces authenticity:
// at skip, at audit, and if an override logs authenticity, whatever the signer.
// Otherwise any user who may push could decide whether an artifact counts as verified.
//
// # Revocation
//
// Unless the level skips it, revocation is checked by OCSP and then by CRL at the
// addresses in the certificates, through the proxy of the spec, with 5 seconds per
// request and without caching between verifications. It is not checked for untrusted
// certificates, because an untrusted signer must not choose the addresses that are
// contacted. If revocation is enforced and its status is unknown, the signature is not
// accepted; but it is not refused either: the error does not wrap
// [source.ErrVerification]. Certificates without an address cannot be revoked.
package notation
