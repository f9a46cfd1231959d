package wire

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"

	"golang.org/x/crypto/ssh"
)

// parseIdentity reads a private key. Its errors repeat nothing of the key.
func parseIdentity(key, passphrase []byte) (ssh.Signer, error) {
	raw, err := ssh.ParseRawPrivateKey(key)
	if _, ok := errors.AsType[*ssh.PassphraseMissingError](err); ok {
		if len(passphrase) == 0 {
			return nil, errors.New("the private key is encrypted: its passphrase is missing (password in the Secret)")
		}
		raw, err = ssh.ParseRawPrivateKeyWithPassphrase(key, passphrase)
		if errors.Is(err, x509.IncorrectPasswordError) {
			return nil, errors.New("the passphrase of the private key is wrong (password in the Secret)")
		}
	}
	if err != nil {
		return nil, notAKey(key)
	}
	signer, err := ssh.NewSignerFromKey(raw)
	if err != nil {
		return nil, fmt.Errorf("private key of type %T: use an Ed25519, ECDSA or RSA key", raw)
	}
	if s, ok := signer.(ssh.AlgorithmSigner); ok && signer.PublicKey().Type() == ssh.KeyAlgoRSA {
		return ssh.NewSignerWithAlgorithms(s, []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256})
	}
	return signer, nil
}

// notAKey tells what is wrong with a text that is no private key we can read.
func notAKey(key []byte) error {
	if _, _, _, _, err := ssh.ParseAuthorizedKey(key); err == nil {
		return errors.New("this is a public key: the private key is needed")
	}
	block, _ := pem.Decode(key)
	if block == nil {
		return errors.New("this is not a private key in PEM format")
	}
	return fmt.Errorf("private key of PEM type %.40q is damaged or of an unknown format: ssh-keygen -p -f FILE rewrites it", block.Type)
}
