package cosign_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/oci/cosign"
)

// TestRecordedKeyless verifies what fuzzing begins with.
func TestRecordedKeyless(t *testing.T) {
	k, trust := readKeyless(t)
	for _, text := range [][]byte{k.Bundle, k.Tiled} {
		_, err := cosign.TryBundle(trust, text, k.Subject)
		check(t, err)
	}
	_, err := cosign.TryLayer(trust, k.Layer.Data, k.Layer.Annotations, k.Subject)
	check(t, err)
}

// payload returns what a bundle says.
func payload(t testing.TB, text []byte) []byte {
	t.Helper()
	var b protobundle.Bundle
	check(t, protojson.Unmarshal(text, &b))
	return b.GetDsseEnvelope().GetPayload()
}

// FuzzBundle changes bundles. None may panic, and none may hold that says
// something else.
func FuzzBundle(f *testing.F) {
	k, trust := readKeyless(f)
	trusts := []oci.Trust{trust, recorded(f, "p256", "rsa", "ed25519")}
	f.Add([]byte(k.Bundle))
	f.Add([]byte(k.Tiled))
	files, err := filepath.Glob("../../testdata/cosign/cosign3/blobs/sha256/*")
	check(f, err)
	for _, name := range files {
		text, err := os.ReadFile(name)
		check(f, err)
		f.Add(text)
	}
	want := payload(f, k.Bundle)
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, trust := range trusts {
			if _, err := cosign.TryBundle(trust, data, k.Subject); err == nil && !bytes.Equal(payload(t, data), want) {
				t.Errorf("it holds: %s", data)
			}
		}
	})
}

// FuzzLayer changes layers, payload and annotations.
func FuzzLayer(f *testing.F) {
	k, trust := readKeyless(f)
	trusts := []oci.Trust{trust, recorded(f, "p256", "rsa", "ed25519")}
	a := k.Layer.Annotations
	f.Add(k.Layer.Data, a["dev.cosignproject.cosign/signature"], a["dev.sigstore.cosign/certificate"], a["dev.sigstore.cosign/chain"],
		a["dev.sigstore.cosign/bundle"], a["dev.sigstore.cosign/rfc3161timestamp"])
	f.Add([]byte("{}"), "AAAA", "", "", "", "")
	f.Fuzz(func(t *testing.T, data []byte, sig, leaf, chain, rekor, stamp string) {
		for _, trust := range trusts {
			_, err := cosign.TryLayer(trust, data, map[string]string{
				"dev.cosignproject.cosign/signature": sig, "dev.sigstore.cosign/certificate": leaf, "dev.sigstore.cosign/chain": chain,
				"dev.sigstore.cosign/bundle": rekor, "dev.sigstore.cosign/rfc3161timestamp": stamp,
			}, k.Subject)
			if err == nil && !bytes.Equal(data, k.Layer.Data) {
				t.Errorf("it holds: %s", data)
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

// FuzzTrustedRoot changes the trusted root, which must not panic in use either.
func FuzzTrustedRoot(f *testing.F) {
	k, trust := readKeyless(f)
	f.Add([]byte(k.Root))
	f.Add([]byte("{}"))
	r := connect(f, testenv.StartRegistry(f, testenv.RegistryConfig{}), "app")
	technology := cosign.New(cosign.Config{})
	f.Fuzz(func(t *testing.T, data []byte) {
		trust := trust
		trust.Root = secret("trusted_root.json", string(data))
		if _, err := technology(r, trust); err == nil {
			cosign.TryBundle(trust, k.Bundle, k.Subject)
		}
	})
}
