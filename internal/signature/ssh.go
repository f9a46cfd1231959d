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
)

// sshAlgorithms maps the types of SSH keys to the formats of the signatures that they may
// make.
var sshAlgorithms = map[string][]string{
	"ssh-ed25519":                        {"ssh-ed25519"},
	"ecdsa-sha2-nistp256":                {"ecdsa-sha2-nistp256"},
	"ecdsa-sha2-nistp384":                {"ecdsa-sha2-nistp384"},
	"ecdsa-sha2-nistp521":                {"ecdsa-sha2-nistp521"},
	"ssh-rsa":                            {"rsa-sha2-256", "rsa-sha2-512"},
	"sk-ssh-ed25519@openssh.com":         {"sk-ssh-ed25519@openssh.com"},
	"sk-ecdsa-sha2-nistp256@openssh.com": {"sk-ecdsa-sha2-nistp256@openssh.com"},
}

// addSSH reads lines of OpenSSH public keys.
func (k *Keys) addSSH(data []byte) error {
	before, number := len(k.ssh), 0
	for line := range bytes.Lines(data) {
		number++
		if line = bytes.TrimSpace(line); len(line) == 0 || line[0] == '#' {
			continue
		}
		key, _, options, _, err := ssh.ParseAuthorizedKey(line)
		switch {
		case err != nil:
			return fmt.Errorf("line %d is not an OpenSSH public key", number)
		case len(options) > 0:
			return fmt.Errorf("line %d has options or principals before the key, which are not supported: write the key alone", number)
		}
		if _, is := key.(*ssh.Certificate); is {
			return fmt.Errorf("line %d is an SSH certificate, which is not supported: write the public key", number)
		}
		k.ssh = append(k.ssh, key)
	}
	if len(k.ssh) == before {
		return errors.New("holds no key: want OpenSSH public keys, one a line")
	}
	return nil
}

// magic begins an SSHSIG and what it signs (OpenSSH, PROTOCOL.sshsig).
const magic = "SSHSIG"

// namespace is the namespace of git's signatures.
const namespace = "git"

// An envelope is the part of an SSHSIG after its magic.
type envelope struct {
	Version   uint32
	PublicKey []byte
	Namespace string
	Reserved  string
	Hash      string
	Signature []byte
}

// sshHashes are the hash functions of an SSHSIG, by name.
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
	if err := k.checkSSH(env, key, sig); err != nil {
		return "", fmt.Errorf("signature by the SSH key %s: %w", signer, err)
	}
	digest := sshHashes[env.Hash](payload)
	signed := append([]byte(magic), ssh.Marshal(struct {
		Namespace, Reserved, Hash string
		Digest                    []byte
	}{env.Namespace, env.Reserved, env.Hash, digest})...)
	if key.Verify(signed, sig) != nil {
		return "", fmt.Errorf("signature by the SSH key %s: %w", signer, errMismatch)
	}
	return signer, nil
}

// readSSH parses a signature.
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
		return env, nil, nil, fmt.Errorf("its key: %.80q", err.Error()) // the error may quote the whole key
	}
	sig = new(ssh.Signature)
	if err = ssh.Unmarshal(env.Signature, sig); err != nil {
		return env, nil, nil, err
	}
	if wants := trailerSize(key); len(sig.Rest) != wants {
		return env, nil, nil, fmt.Errorf("%d bytes follow it, want %d", len(sig.Rest), wants)
	}
	return env, key, sig, nil
}

// userPresence is the flag of a security key that a person touched it.
const userPresence = 1

func isSecurityKey(key ssh.PublicKey) bool { return strings.HasPrefix(key.Type(), "sk-") }

// trailerSize returns how many bytes follow a signature by key: security keys add flags and a counter.
func trailerSize(key ssh.PublicKey) int {
	if isSecurityKey(key) {
		return 5
	}
	return 0
}

// checkSSH checks everything about a signature except whether it belongs to the payload.
func (k *Keys) checkSSH(env envelope, key ssh.PublicKey, sig *ssh.Signature) error {
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
	case isSecurityKey(key) && sig.Rest[0]&userPresence == 0:
		return errors.New("it was made without a touch of the security key")
	}
	if c, is := key.(ssh.CryptoPublicKey); is {
		if r, is := c.CryptoPublicKey().(*rsa.PublicKey); is {
			return checkRSA(r.N.BitLen())
		}
	}
	return nil
}
