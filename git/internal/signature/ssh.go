package signature

import (
	"bytes"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/headgate-io/headgate/internal/openpgp"
)

// magic begins an SSHSIG and what it signs (OpenSSH, PROTOCOL.sshsig).
const magic = "SSHSIG"

// namespace is the one that git signs in.
const namespace = "git"

// An envelope is an SSHSIG behind its magic.
type envelope struct {
	Version   uint32
	PublicKey []byte
	Namespace string
	Reserved  string
	Hash      string
	Signature []byte
}

// sshHashes compute what an SSHSIG signs of its message, by their names there.
var sshHashes = map[string]func([]byte) []byte{
	"sha256": func(b []byte) []byte { h := sha256.Sum256(b); return h[:] },
	"sha512": func(b []byte) []byte { h := sha512.Sum512(b); return h[:] },
}

// verifySSH checks an SSHSIG.
func (k *Keys) verifySSH(payload, signature []byte, _ time.Time) (string, error) {
	env, key, sig, err := readSSH(signature)
	if err != nil {
		return "", fmt.Errorf("the SSH signature is malformed: %w", err)
	}
	signer := ssh.FingerprintSHA256(key)
	if err := k.judgeSSH(env, key, sig); err != nil {
		return "", fmt.Errorf("signature by the SSH key %s: %w", signer, err)
	}
	digest := sshHashes[env.Hash](payload)
	signed := append([]byte(magic), ssh.Marshal(struct {
		Namespace, Reserved, Hash string
		Digest                    []byte
	}{env.Namespace, env.Reserved, env.Hash, digest})...)
	if key.Verify(signed, sig) != nil {
		return "", fmt.Errorf("signature by the SSH key %s: %w", signer, openpgp.ErrMismatch)
	}
	return signer, nil
}

// readSSH takes a signature apart.
func readSSH(signature []byte) (env envelope, key ssh.PublicKey, sig *ssh.Signature, err error) {
	block, rest := pem.Decode(signature)
	if block == nil || block.Type != "SSH SIGNATURE" || len(block.Headers) > 0 || len(bytes.TrimSpace(rest)) > 0 || bytes.Count(signature, []byte("-----BEGIN ")) != 1 {
		return env, nil, nil, errors.New("want one armored block and no text around it")
	}
	data, found := bytes.CutPrefix(block.Bytes, []byte(magic))
	if !found {
		return env, nil, nil, errors.New("it does not begin with " + magic)
	}
	if err := ssh.Unmarshal(data, &env); err != nil {
		return env, nil, nil, err
	}
	if env.Version != 1 {
		return env, nil, nil, fmt.Errorf("version %d is not supported", env.Version)
	}
	if key, err = ssh.ParsePublicKey(env.PublicKey); err != nil {
		return env, nil, nil, fmt.Errorf("its key: %.80q", err.Error()) // which may quote all of the key
	}
	sig = new(ssh.Signature)
	if err = ssh.Unmarshal(env.Signature, sig); err != nil {
		return env, nil, nil, err
	}
	if wants := restOf(key); len(sig.Rest) != wants {
		return env, nil, nil, fmt.Errorf("%d bytes follow it, want %d", len(sig.Rest), wants)
	}
	return env, key, sig, nil
}

// touched is the flag of a security key that somebody touched it.
const touched = 1

func isSecurityKey(key ssh.PublicKey) bool { return strings.HasPrefix(key.Type(), "sk-") }

// restOf returns how many bytes follow a signature: security keys add flags and a counter.
func restOf(key ssh.PublicKey) int {
	if isSecurityKey(key) {
		return 5
	}
	return 0
}

// judgeSSH checks everything about a signature but the signature itself.
func (k *Keys) judgeSSH(env envelope, key ssh.PublicKey, sig *ssh.Signature) error {
	formats, known := sshAlgorithms[key.Type()]
	switch {
	case strings.Contains(key.Type(), "-cert-"):
		return errors.New("SSH certificates are not supported: sign with a key")
	case !known:
		return fmt.Errorf("the key is too weak or not supported: type %.40q", key.Type())
	case env.Namespace != namespace:
		return fmt.Errorf("it was made for the namespace %.40q, not for git", env.Namespace)
	case sshHashes[env.Hash] == nil:
		return fmt.Errorf("the hash function %.40q is not supported: want sha256 or sha512", env.Hash)
	case !slices.Contains(formats, sig.Format):
		return fmt.Errorf("the signature is too weak or not supported: format %.40q of a key of type %s", sig.Format, key.Type())
	case !slices.ContainsFunc(k.ssh, func(trusted ssh.PublicKey) bool { return bytes.Equal(trusted.Marshal(), key.Marshal()) }):
		return errors.New("it is none of the trusted keys")
	case isSecurityKey(key) && sig.Rest[0]&touched == 0:
		return errors.New("it was made without a touch of the security key")
	}
	if c, is := key.(ssh.CryptoPublicKey); is {
		if r, is := c.CryptoPublicKey().(*rsa.PublicKey); is {
			return openpgp.RSAStrength(r.N.BitLen())
		}
	}
	return nil
}
