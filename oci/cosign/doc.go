// Package cosign verifies signatures that cosign made, as an [oci.Technology]
// (specification, "OCIRepositoryVerification"; reference A11).
//
// # Whose signatures count
//
// With spec.verify.secretRef, those by a key in an entry of the Secret whose
// name ends in .pub; any of them may have signed. A key is ECDSA on P-256,
// P-384 or P-521, Ed25519, or RSA of 2048 to 8192 bits, in one PEM block. An
// entry that cannot be read is an error, whoever signed: otherwise it would be
// found out on the day the other key is retired. Nothing but the registry is
// asked, and spec.verify.matchOIDCIdentity is not looked at.
//
// Without it, those by a certificate of Fulcio for an identity that an entry
// of spec.verify.matchOIDCIdentity matches, in issuer and subject. Both are
// regular expressions of package [regexp], which match anywhere in the value
// unless ^ and $ anchor them. The certificate must bear a timestamp of a
// certificate transparency log, the signature must be in Rekor, and its time,
// by Rekor or a timestamp authority, must be within the life of the
// certificate. The entry in Rekor must be that of this signature: same digest,
// same signature, same certificate. A key that comes with a signature never
// counts. The trusted root is the entry trusted_root.json of the Secret of
// spec.verify.trustedRootSecretRef, or else by the TUF repository of [Config].
//
// # What a signature is
//
// First come the bundles that refer to the subject (cosign 3): a DSSE envelope
// with an in-toto statement of the predicate https://sigstore.dev/cosign/sign/v1
// about the subject's digest. Attestations of other predicates are no
// signatures, whoever made them. Then come the layers of the tag
// sha256-HEX.sig (cosign 1 and 2): a payload with the digest of the subject,
// its signature in an annotation, and there, for a keyless one, certificate,
// entry in Rekor and RFC 3161 timestamp. Rekor is never asked for an entry that
// does not come with the signature.
//
// The first signature that holds decides. When none does, the error says of
// each what is wrong with it. What the registry refuses to hand out is an error
// of its own, never "not signed", unless another signature holds.
//
// # Limits
//
// At most 32 signatures of each of the two formats are tried, after looking at no
// more than 256 manifests that refer to the subject. A bundle has at most 1 MiB,
// a payload, a timestamp and the body of an entry in Rekor 64 KiB each, a
// manifest 4 MiB. A timestamp is DER (RFC 3161), nested at most 32 deep. RSA
// keys that come with a signature or are in a trusted root have at most 8192
// bits. A Secret holds at most 64 keys.
package cosign

const (
	maxSignatures = 32
	maxReferrers  = 256
	maxBundle     = 1 << 20
	maxPayload    = 64 << 10
	maxKeys       = 64
)
