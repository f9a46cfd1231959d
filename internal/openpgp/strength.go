package openpgp

import (
	"crypto"
	"fmt"

	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

// minRSA is how many bits an RSA key must have.
const minRSA = 2048

// hashes are the hash functions that a signature may use.
var hashes = map[crypto.Hash]bool{
	crypto.SHA256: true, crypto.SHA384: true, crypto.SHA512: true,
	crypto.SHA3_256: true, crypto.SHA3_512: true,
}

// algorithms are the OpenPGP algorithms that a key may use.
var algorithms = map[packet.PublicKeyAlgorithm]bool{
	packet.PubKeyAlgoRSA: true, packet.PubKeyAlgoRSASignOnly: true,
	packet.PubKeyAlgoECDSA: true, packet.PubKeyAlgoEdDSA: true,
	packet.PubKeyAlgoEd25519: true, packet.PubKeyAlgoEd448: true,
}

// weak are the names of algorithms that are refused for being too weak.
var weak = map[packet.PublicKeyAlgorithm]string{packet.PubKeyAlgoDSA: "DSA", packet.PubKeyAlgoElGamal: "Elgamal"}

// strength returns why an OpenPGP key is too weak, nil when it is not.
func strength(key *packet.PublicKey) error {
	algorithm := key.PubKeyAlgo
	switch name, known := weak[algorithm]; {
	case known:
		return fmt.Errorf("the key is too weak: %s", name)
	case key.Version != 4 && key.Version != 6:
		return fmt.Errorf("the key has version %d, which is not supported", key.Version)
	case !algorithms[algorithm]:
		return fmt.Errorf("the key has an algorithm (number %d) that is not supported", algorithm)
	case algorithm == packet.PubKeyAlgoRSA || algorithm == packet.PubKeyAlgoRSASignOnly:
		bits, err := key.BitLength()
		if err != nil {
			return err
		}
		return RSAStrength(int(bits))
	}
	return nil
}

// RSAStrength returns why an RSA key of so many bits is too weak, nil when it is not.
func RSAStrength(bits int) error {
	if bits < minRSA {
		return fmt.Errorf("the key is too weak: RSA of %d bits, less than %d", bits, minRSA)
	}
	return nil
}

// hashStrength returns why a hash function is too weak for a signature.
func hashStrength(h crypto.Hash) error {
	if !hashes[h] {
		return fmt.Errorf("the signature is too weak: its hash function is %v, want SHA-256 or better", h)
	}
	return nil
}
