// Package openpgp judges OpenPGP signatures by keys that somebody trusts:
// detached ones over binary data, and texts that are signed in the clear.
//
// # What is accepted
//
// One signature of version 4 or 6 by a key that may sign data. Refused are hashes
// weaker than SHA-256 (SHA-224 is taken as weak too), RSA keys of fewer than 2048
// bits, DSA and every algorithm that the table in strength.go lacks. Text around
// a signature, which it would not cover, is refused as well.
//
// Several copies of one key are merged, as in a key ring: a revocation in one
// counts for all.
//
// # Time
//
// A key is judged as its owner describes it now: by its newest
// self-signatures, and at the time that is given to [Keys.Verify]. It must
// neither be expired nor revoked then; a key that carries a revocation is
// revoked, whatever the reason, the date and the issuer of that. The signature
// must have been made within the life of the key, not after the given time, and
// must not be expired itself. So a key that is renewed renews what it signed,
// and one that expires ends it. A subkey and its primary key must both pass.
//
// Self-signatures may use SHA-1, as those of many older keys do: they come from
// the one who chose the keys.
package openpgp
