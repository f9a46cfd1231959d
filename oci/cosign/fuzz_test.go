package cosign_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	digest "github.com/opencontainers/go-digest"
	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/oci/cosign"
)

// FuzzBundle changes bundles. None may panic, and what does not decode to the
// same signature as before must not hold.
func FuzzBundle(f *testing.F) {
	s, d := newSigstore(f), digest.FromString("subject")
	trusts := []oci.Trust{s.trust(f), recorded(f, "p256", "rsa", "ed25519")}
	var held []*protobundle.Bundle
	for _, tiled := range []bool{false, true} {
		o := s.good(d)
		o.tiled = tiled
		held = append(held, o.bundle(f))
		text, err := protojson.Marshal(held[len(held)-1])
		check(f, err)
		f.Add(text)
	}
	files, err := filepath.Glob("testdata/cosign3/blobs/sha256/*")
	check(f, err)
	for _, name := range files {
		text, err := os.ReadFile(name)
		check(f, err)
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, trust := range trusts {
			if _, err := cosign.TryBundle(trust, data, d); err != nil {
				continue
			}
			var b protobundle.Bundle
			check(t, protojson.Unmarshal(data, &b))
			known := false
			for _, h := range held {
				known = known || bytes.Equal(b.GetDsseEnvelope().GetPayload(), h.GetDsseEnvelope().Payload)
			}
			if !known {
				t.Errorf("it holds: %s", data)
			}
		}
	})
}

// FuzzLayer changes layers, payload and annotations.
func FuzzLayer(f *testing.F) {
	s, d := newSigstore(f), digest.FromString("subject")
	trusts := []oci.Trust{s.trust(f), recorded(f, "p256", "rsa", "ed25519")}
	good := s.good(d).layer(f)
	add := func(b testenv.Blob) {
		a := b.Annotations
		f.Add(b.Data, a["dev.cosignproject.cosign/signature"], a["dev.sigstore.cosign/certificate"], a["dev.sigstore.cosign/chain"],
			a["dev.sigstore.cosign/bundle"], a["dev.sigstore.cosign/rfc3161timestamp"])
	}
	add(*good)
	add(testenv.Blob{Data: []byte("{}"), Annotations: map[string]string{"dev.cosignproject.cosign/signature": "AAAA"}})
	f.Fuzz(func(t *testing.T, payload []byte, sig, leaf, chain, rekor, stamp string) {
		for _, trust := range trusts {
			_, err := cosign.TryLayer(trust, payload, map[string]string{
				"dev.cosignproject.cosign/signature": sig, "dev.sigstore.cosign/certificate": leaf, "dev.sigstore.cosign/chain": chain,
				"dev.sigstore.cosign/bundle": rekor, "dev.sigstore.cosign/rfc3161timestamp": stamp,
			}, d)
			if err == nil && !bytes.Equal(payload, good.Data) {
				t.Errorf("it holds: %s", payload)
			}
		}
	})
}

// FuzzKey changes the entry of a Secret.
func FuzzKey(f *testing.F) {
	for _, k := range kinds {
		f.Add(recorded(f, k.name).Keys.Data[k.name+".pub"])
	}
	f.Add([]byte(x25519))
	r := connect(f, testenv.StartRegistry(f, testenv.RegistryConfig{}), "app")
	technology := cosign.New(cosign.Config{})
	f.Fuzz(func(t *testing.T, data []byte) {
		if v, err := technology(r, oci.Trust{Keys: secret("a.pub", string(data))}); (v == nil) == (err == nil) {
			t.Errorf("verifier %v and error %v", v, err)
		}
	})
}

// FuzzTrustedRoot changes the trusted root.
func FuzzTrustedRoot(f *testing.F) {
	s := newSigstore(f)
	f.Add([]byte(s.trustedRoot(f)))
	f.Add([]byte("{}"))
	d := digest.FromString("subject")
	text, err := protojson.Marshal(s.good(d).bundle(f))
	check(f, err)
	r := connect(f, testenv.StartRegistry(f, testenv.RegistryConfig{}), "app")
	technology := cosign.New(cosign.Config{})
	f.Fuzz(func(t *testing.T, data []byte) {
		trust := s.trust(t)
		trust.Root = secret("trusted_root.json", string(data))
		if _, err := technology(r, trust); err == nil {
			cosign.TryBundle(trust, text, d) // whatever it says
		}
	})
}
