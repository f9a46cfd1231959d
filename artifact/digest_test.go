package artifact_test

import (
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
)

// digests of "hello\n", as printed by sha256sum, sha384sum, sha512sum and b3sum.
var digests = map[artifact.Algorithm]string{
	artifact.SHA256: "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03",
	artifact.SHA384: "1d0f284efe3edea4b9ca3bd514fa134b17eae361ccc7a1eefeff801b9bd6604e01f21f6bf249ef030599f0c218f2ba8c",
	artifact.SHA512: "e7c22b994c59d9cf2b48e549b1e24666636045930d3da7c1acb299d1c3b7f931f94aae41edda2c2b207a36e10f8bcb8d45223e54878f5b316e7ce3b6bc019629",
	artifact.BLAKE3: "8e4c7c1b99dbfd50e7a95185fead5ee1448fa904a2fdd778eaf5f2dbfd629a99",
}

func TestAlgorithms(t *testing.T) {
	for algorithm, want := range digests {
		h, err := algorithm.New()
		must(t, err)
		io.WriteString(h, "hello\n")
		testenv.Equal(t, hex.EncodeToString(h.Sum(nil)), want, string(algorithm))
	}
	h, err := artifact.BLAKE3.New()
	must(t, err)
	const nothing = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262" // the published vector
	testenv.Equal(t, hex.EncodeToString(h.Sum(nil)), nothing, "blake3 of nothing")
	if h, err := artifact.Algorithm("").New(); err != nil || h.Size() != 32 {
		t.Errorf("the zero value: %v", err)
	}
	for _, unknown := range []artifact.Algorithm{"sha1", "md5", "SHA256"} {
		if _, err := unknown.New(); !errors.Is(err, artifact.ErrAlgorithm) || !strings.Contains(err.Error(), string(unknown)) {
			t.Errorf("%s: %v, want ErrAlgorithm", unknown, err)
		}
	}
}

func TestParseDigest(t *testing.T) {
	for algorithm, value := range digests {
		a, v, err := artifact.ParseDigest(string(algorithm) + ":" + value)
		if a != algorithm || v != value || err != nil {
			t.Errorf("%s: %s %s, %v", algorithm, a, v, err)
		}
	}
	legacy := digests[artifact.SHA256]
	if a, v, err := artifact.ParseDigest(legacy); a != artifact.SHA256 || v != legacy || err != nil {
		t.Errorf("legacy form: %s %s, %v", a, v, err)
	}
	for digest, want := range map[string]string{
		"":                                   "has 0 digits",
		"sha256:":                            "has 0 digits",
		":" + legacy:                         "no algorithm",
		"sha1:" + legacy[:40]:                "not supported",
		"sha256:" + legacy[1:]:               "63 digits",
		"sha512:" + legacy:                   "64 digits",
		"sha256:" + strings.ToUpper(legacy):  "lower-case",
		"sha256:" + legacy[:63] + "g":        "hexadecimal",
		"sha256:" + legacy[:62] + "\n" + "0": "hexadecimal",
		"sha256:sha256:" + legacy[:57]:       "hexadecimal",
		legacy[:40]:                          "40 digits",
		"sha256:" + "../" + legacy[:61]:      "hexadecimal",
	} {
		if _, _, err := artifact.ParseDigest(digest); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", digest, err, want)
		}
	}
}

func TestVerifyReader(t *testing.T) {
	good, bad := "sha256:"+digests[artifact.SHA256], "sha256:"+strings.Repeat("0", 64)
	for _, wrap := range []func(io.Reader) io.Reader{
		func(r io.Reader) io.Reader { return r }, iotest.OneByteReader, iotest.DataErrReader,
	} {
		r, err := artifact.VerifyReader(wrap(strings.NewReader("hello\n")), good)
		must(t, err)
		if got, err := io.ReadAll(r); string(got) != "hello\n" || err != nil {
			t.Errorf("read %q, %v", got, err)
		}
		r, err = artifact.VerifyReader(wrap(strings.NewReader("hello\n")), bad)
		must(t, err)
		_, err = io.ReadAll(r)
		var mismatch *artifact.DigestError
		if !errors.As(err, &mismatch) || mismatch.Want != bad || mismatch.Got != good {
			t.Errorf("other content: %v", err)
		}
	}
	if _, err := artifact.VerifyReader(strings.NewReader(""), "sha1:00"); !errors.Is(err, artifact.ErrAlgorithm) {
		t.Errorf("sha1: %v", err)
	}
	broken := errors.New("broken")
	r, err := artifact.VerifyReader(failingReader{broken}, good)
	must(t, err)
	if _, err := io.ReadAll(r); err != broken {
		t.Errorf("broken reader: %v", err)
	}
}
