package cosign

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	_ "crypto/sha512" // for hashes
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/tuf"
	"github.com/theupdateframework/go-tuf/v2/metadata"

	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/oci/internal/attempt"
)

// A key is a trusted public key.
type key struct {
	public      crypto.PublicKey
	fingerprint string // its fingerprint, SHA256:BASE64, of the PKIX form
}

// readKeys reads the keys in the entries *.pub of spec.verify.secretRef. The error names
// the invalid entry, and never contains its value.
func (v *verifier) readKeys(t oci.Trust) error {
	s := t.Keys
	keyError := func(format string, args ...any) error {
		return fmt.Errorf("spec.verify.secretRef: secret %s%w", s.Name, fmt.Errorf(format, args...))
	}
	for _, name := range slices.Sorted(maps.Keys(s.Data)) {
		if !strings.HasSuffix(name, ".pub") {
			continue
		}
		k, err := parseKey(s.Data[name])
		if err != nil {
			return keyError(": entry %q %w", name, err)
		}
		v.keys = append(v.keys, k)
	}
	switch {
	case len(v.keys) == 0:
		return keyError(" has no entry with a public key (NAME.pub)")
	case len(v.keys) > maxKeys:
		return keyError(" has %d keys, more than the limit of %d", len(v.keys), maxKeys)
	}
	return nil
}

func parseKey(data []byte) (key, error) {
	block, rest := pem.Decode(data)
	if block == nil {
		return key{}, errors.New("is no PEM: want a PUBLIC KEY as cosign generate-key-pair or cosign public-key writes it")
	}
	if next, _ := pem.Decode(rest); next != nil {
		return key{}, errors.New("holds more than one PEM block: give each key an entry of its own")
	}
	if strings.HasSuffix(block.Type, "PRIVATE KEY") {
		return key{}, errors.New("holds a private key, which must stay with its owner: put the public key there, and replace this one if others could read it")
	}
	read := parsers[block.Type]
	if read == nil {
		return key{}, fmt.Errorf("holds a PEM block %.40q: want PUBLIC KEY", block.Type)
	}
	public, err := read(block.Bytes)
	if err != nil {
		return key{}, fmt.Errorf("holds no public key: %w", err)
	}
	if err := checkKey(public); err != nil {
		return key{}, err
	}
	canonical, err := x509.MarshalPKIXPublicKey(public)
	sum := sha256.Sum256(canonical)
	return key{public, "SHA256:" + base64.RawStdEncoding.EncodeToString(sum[:])}, err
}

// parsers parse public keys, by PEM type.
var parsers = map[string]func([]byte) (any, error){
	"PUBLIC KEY":     x509.ParsePKIXPublicKey,
	"RSA PUBLIC KEY": func(der []byte) (any, error) { return x509.ParsePKCS1PublicKey(der) },
}

// checkKey returns an error unless public is a supported key of sufficient strength.
func checkKey(public crypto.PublicKey) error {
	switch k := public.(type) {
	case *ecdsa.PublicKey:
		if k.Curve == elliptic.P224() {
			return errors.New("holds an ECDSA key on P-224: want P-256, P-384 or P-521")
		}
	case *rsa.PublicKey:
		if bits := k.N.BitLen(); bits < 2048 || bits > maxBits {
			return fmt.Errorf("holds an RSA key of %d bits, want 2048 to %d", bits, maxBits)
		}
	case ed25519.PublicKey:
	default:
		return fmt.Errorf("holds a key of the type %T: want ECDSA, Ed25519 or RSA", public)
	}
	return nil
}

// verifyByKey is a [judge] that trusts v.keys.
func (v *verifier) verifyByKey(s *signature) (string, error) {
	for _, k := range v.keys {
		if k.verifies(s.sig, s.message) {
			return k.fingerprint, nil
		}
	}
	switch {
	case s.keyless:
		return "", attempt.Refuse("it was made with a certificate, not with a key: spec.verify.matchOIDCIdentity without secretRef can allow its owner")
	case len(v.keys) == 1:
		return "", attempt.Refuse("it was not made with the key %s, or not of this", v.keys[0].fingerprint)
	}
	return "", attempt.Refuse("it was made with none of the %d keys, or not of this", len(v.keys))
}

// hashes are the hash functions that a signature may use. Releases of cosign differ in
// which one they use with which key.
var hashes = []crypto.Hash{crypto.SHA256, crypto.SHA384, crypto.SHA512}

// verifies reports whether sig is a signature of message by k.
func (k key) verifies(sig, message []byte) bool {
	if public, is := k.public.(ed25519.PublicKey); is {
		sum := sum(crypto.SHA512, message)
		return ed25519.Verify(public, message, sig) ||
			ed25519.VerifyWithOptions(public, sum, sig, &ed25519.Options{Hash: crypto.SHA512}) == nil
	}
	return slices.ContainsFunc(hashes, func(h crypto.Hash) bool {
		switch public := k.public.(type) {
		case *ecdsa.PublicKey:
			return ecdsa.VerifyASN1(public, sum(h, message), sig)
		case *rsa.PublicKey:
			return rsa.VerifyPKCS1v15(public, h, sum(h, message), sig) == nil
		}
		return false
	})
}

func sum(h crypto.Hash, message []byte) []byte {
	w := h.New()
	w.Write(message)
	return w.Sum(nil)
}

const (
	rootAge   = 24 * time.Hour // after which the trusted root is fetched again
	rootPause = time.Minute    // minimum time between two fetches because of invalid signatures
	maxTarget = 8 << 20        // bytes of one file of a TUF repository
)

// roots is the trusted root of a TUF repository, shared by verifiers that may
// use different proxies. So no verifier waits for a request of another, or
// fails because of it. It is safe for concurrent use.
type roots struct {
	config Config

	mu       sync.Mutex
	material *root.TrustedRoot // nil: none yet
	since    time.Time         // when material was fetched
	asked    time.Time         // when the repository was last contacted
}

// current returns the trusted root. It fetches it through web if there is none of the last
// day. useless is a root with which no signature was valid, or nil: if that is the known
// root, current fetches it again unless the repository was contacted within the last minute.
func (r *roots) current(ctx context.Context, web *http.Client, useless *root.TrustedRoot) (*root.TrustedRoot, error) {
	r.mu.Lock()
	known, now := r.material, r.config.Now()
	fresh := known != nil && now.Sub(r.since) < rootAge
	again := fresh && known == useless && now.Sub(r.asked) >= rootPause
	if again {
		r.asked = now
	}
	r.mu.Unlock()
	if fresh && !again {
		return known, nil
	}
	material, err := r.fetch(ctx, web, known != nil)
	switch {
	case err == nil:
		return material, nil
	case again:
		return known, nil // report the failed verification, not the error of the repository
	}
	return nil, fmt.Errorf("read the trusted root of Sigstore from %s: %w "+
		"(a Secret in spec.verify.trustedRootSecretRef needs no network)", r.config.Mirror, err)
}

// fetch gets the trusted root from the TUF repository or its cache. If known is set, the
// cached root is known already, so fetch contacts the repository.
func (r *roots) fetch(ctx context.Context, web *http.Client, known bool) (material *root.TrustedRoot, err error) {
	f := &fetcher{ctx: ctx, web: web}
	client, err := tuf.New(&tuf.Options{
		Root:              r.config.Anchor,
		RepositoryBaseURL: r.config.Mirror,
		CachePath:         r.config.Cache,
		DisableLocalCache: r.config.Cache == "",
		CacheValidity:     int(rootAge / (24 * time.Hour)),
		Fetcher:           f,
	})
	if err == nil && r.config.Cache != "" && known {
		err = client.Refresh()
	}
	if err == nil {
		material, err = root.GetTrustedRoot(client)
	}
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.material, r.since = material, r.config.Now()
	if f.used {
		r.asked = r.since
	}
	return material, nil
}

// A fetcher downloads the files of a TUF repository, within one call of [roots.fetch].
type fetcher struct {
	ctx  context.Context
	web  *http.Client
	used bool
}

// DownloadFile implements the Fetcher interface of go-tuf.
func (f *fetcher) DownloadFile(url string, limit int64, _ time.Duration) ([]byte, error) {
	f.used = true
	req, err := http.NewRequestWithContext(f.ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	res, err := f.web.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, &metadata.ErrDownloadHTTP{StatusCode: res.StatusCode, URL: url}
	}
	limit = min(limit, maxTarget)
	data, err := io.ReadAll(io.LimitReader(res.Body, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = &metadata.ErrDownloadLengthMismatch{Msg: fmt.Sprintf("%s has more than %d bytes", url, limit)}
	}
	return data, err
}
