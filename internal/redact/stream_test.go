package redact_test

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/redact"
)

// streamed masks text, cut into pieces of n bytes.
func streamed(text string, n int, secrets ...string) string {
	s := redact.NewStream(secrets...)
	var out strings.Builder
	for from := 0; from < len(text); from += n {
		out.Write(s.Next([]byte(text[from:min(from+n, len(text))])))
	}
	out.Write(s.End())
	return out.String()
}

func TestStream(t *testing.T) {
	const canary = "c4n/ry+s3cr3t"
	for text, want := range map[string]string{
		"":                                   "",
		"nothing to see":                     "nothing to see",
		"a " + canary + " b":                 "a *** b",
		canary + canary:                      "******",
		"c4n/ry+s3cr3" + canary + "c4n/ry+":  "c4n/ry+s3cr3***c4n/ry+",
		"c4n%2fry%2bs3cr3t\n":                "***\n",
		"abcdefgh abcdef cdefgh abcdcdefgh":  "*** *** *** abcd***",
		"a pw: 'pw' in pwd, powpw pw":        "a ***: '***' in pwd, powpw ***",
		"pwä äpw pw " + canary + "pw\xff pw": "pwä äpw *** ***pw\xff ***",
		"x" + strings.Repeat("yy", 50):       "x***",
		base64.StdEncoding.EncodeToString([]byte("u:" + canary)): "dTpj***",
	} {
		for n := 1; n < 20; n++ {
			got := streamed(text, n, canary, "abcdef", "cdefgh", "pw", "yyyyy", "")
			if strings.HasPrefix(want, "dTp") { // the digits around it depend on it as well
				if strings.Contains(got, base64.StdEncoding.EncodeToString([]byte("u:" + canary))[4:14]) {
					t.Errorf("%q in pieces of %d leaks in %q", text, n, got)
				}
			} else if want == "x***" {
				if got = strings.Trim(got, "x*"); got != "" {
					t.Errorf("%q in pieces of %d: %q is left", text, n, got)
				}
			} else if got != want {
				t.Errorf("%q in pieces of %d: got %q, want %q", text, n, got, want)
			}
		}
	}
}

func TestStreamWithoutSecrets(t *testing.T) {
	s := redact.NewStream("", "\n")
	piece := []byte("as it is")
	if s != nil || !bytes.Equal(s.Next(piece), piece) || s.End() != nil {
		t.Error("changed a text without secrets")
	}
}

// What is held back stays small, also of a text that is one long beginning.
func TestStreamHoldsLittle(t *testing.T) {
	s := redact.NewStream("aaaaaaaab")
	var out int
	for range 1000 {
		out += len(s.Next([]byte(strings.Repeat("a", 1000))))
	}
	if held := 1000*1000 - out; held > 20 {
		t.Errorf("%d bytes are held back", held)
	}
}

// TestBase64OverLines shows that a secret is masked in base64 that is wrapped,
// as base64(1), openssl and mail wrap it, wherever its lines end.
func TestBase64OverLines(t *testing.T) {
	const canary = "c4n/ry+s3cr3t+that+is-long"
	digits := base64.StdEncoding.EncodeToString([]byte("user:" + canary + " and more of it"))
	secret := digits[8:40] // what canary alone decides
	for width := 1; width < len(digits); width++ {
		for _, end := range []string{"\n", "\r\n"} {
			var lines strings.Builder
			for from := 0; from < len(digits); from += width {
				lines.WriteString(digits[from:min(from+width, len(digits))] + end)
			}
			texts := []string{redact.String(lines.String(), canary), redact.Secrets(lines.String(), canary)}
			for _, n := range []int{1, 2, 7, 1000} {
				texts = append(texts, streamed(lines.String(), n, canary))
			}
			for i, got := range texts {
				if joined := strings.NewReplacer("\r", "", "\n", "", "; ", "").Replace(got); strings.Contains(joined, secret[4:24]) || !strings.Contains(joined, redact.Mask) {
					t.Errorf("lines of %d that end in %q, text %d: %q", width, end, i, got)
				}
			}
			cut := lines.String()[:lines.Len()/2]
			if joined := strings.NewReplacer("\r", "", "\n", "").Replace(redact.Tail(cut, canary)); len(joined) > 12 {
				t.Errorf("lines of %d that end in %q, cut: %q", width, end, joined)
			}
		}
	}
}
