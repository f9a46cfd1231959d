package redact_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"html"
	"io/fs"
	"net/url"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/testenv"
)

func TestString(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"plain":                {`resolve main: reference not found`, `resolve main: reference not found`},
		"user information":     {`Get "https://user:pass@example.org/a": EOF`, `Get "https://example.org/a": EOF`},
		"token as user":        {`https://tok3n@example.org/a.git: 401`, `https://example.org/a.git: 401`},
		"query":                {`Put "https://x.blob/c?sv=2026&sig=abc%2Fd": refused`, `Put "https://x.blob/c?sv=***&sig=***": refused`},
		"bare query":           {`https://x/c?abcdef.`, `https://x/c?***.`},
		"fragment":             {`https://x/c#token=1`, `https://x/c`},
		"fragment after query": {`https://x/c?a=b#c`, `https://x/c?a=***`},
		"semicolons":           {`https://x/c?a=b;c=d`, `https://x/c?a=***&c=***`},
		"json escapes":         {`{"u":"https://x/c?a=b\u0026sig=canary"}`, `{"u":"https://x/c?a=***"}`},
		"relative":             {`GET /c?sig=abc HTTP/1.1`, `GET /c?sig=*** HTTP/1.1`},
		"question":             {`is it there? no`, `is it there? no`},
		"digest reference":     {`oci://example.org:5000/a@sha256:0123`, `oci://example.org:5000/a@sha256:0123`},
		"ipv6":                 {`http://[::1]:80/a@b`, `http://[::1]:80/a@b`},
		"slash in password":    {`parse "https://u:pa/ss@example.org/a": bad`, `parse "https://example.org/a": bad`},
		"slash, and go on":     {`parse "https://u:pa/ss@example.org/a": invalid port ":pa" after host`, `parse "https://example.org/a": invalid port "***" after host`},
		"two at signs":         {`https://u:p@ss@example.org/a`, `https://example.org/a`},
		"ssh":                  {`ssh://git@example.org:22/a`, `ssh://example.org:22/a`},
		"several":              {`https://a:b@x/ and (http://c:d@y/?e=f)`, `https://x/ and (http://y/?e=***)`},
		"header":               {`sent Authorization: Bearer abc.def, got 401`, `sent Authorization: ***, got 401`},
		"header as map":        {`map[Authorization:[Basic dXNlcjpw]]`, `map[Authorization:[***]]`},
		"private key":          {"bad key -----BEGIN OPENSSH PRIVATE KEY-----\nabc\n-----END OPENSSH PRIVATE KEY-----!", "bad key ***!"},
		"cut private key":      {"bad key -----BEGIN PRIVATE KEY-----\nabc", "bad key ***"},
		"web token":            {"not eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2ln-_A, sorry", "not ***, sorry"},
		"cut web token":        {"eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.", "***"},
		"no web token":         {"eyJ.eyJ.x and eyJhbGciOiJSUzI1NiJ9", "eyJ.eyJ.x and eyJhbGciOiJSUzI1NiJ9"},
		"colour":               {"\x1b[31mred\x1b[0m", "red"},
		"title":                {"a\x1b]0;owned\x07b", "ab"},
		"open title":           {"a\x1b]0;owned", "a"},
		"lone escape":          {"a\x1bcb\x1b", "ab"},
		"8-bit escape":         {"a\u009b31mb", "a\ufffd31mb"},
		"lines":                {"one\r\ntwo\n\nthree\n", "one; two; three"},
		"bell and bidi":        {"a\ab\u202ec\x00", "a\ufffdb\ufffdc\ufffd"},
		"not utf-8":            {"a\xffb caf\xe9.txt \ufffd", `a\xffb caf\xe9.txt ` + "\ufffd"},
		"tab":                  {"a\tb", "a b"},
		"unicode":              {"größe 大", "größe 大"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			testenv.Equal(t, redact.String(test.text), test.want)
		})
	}
}

// TestStringMasksSecrets plants canaries in every form in which an SDK may print them.
func TestStringMasksSecrets(t *testing.T) {
	const canary = "c4n/ry+s3cr3t=\"ü"
	pem := "line-number-one\nline-number-two\n"
	texts := map[string]string{
		"verbatim":           "password " + canary + " refused",
		"trailing newline":   canary + "\n",
		"quoted":             fmt.Sprintf("%q", canary),
		"query":              url.QueryEscape(canary),
		"path":               url.PathEscape(canary),
		"lower-case escapes": strings.ToLower(url.QueryEscape(canary)),
		"user information":   (&url.URL{Scheme: "x", User: url.UserPassword("u", canary), Host: "h"}).String(),
		"base64":             base64.StdEncoding.EncodeToString([]byte(canary)),
		"base64 url":         base64.URLEncoding.EncodeToString([]byte(canary)),
		"basic, 1":           base64.StdEncoding.EncodeToString([]byte("u:" + canary)),
		"basic, 2":           base64.StdEncoding.EncodeToString([]byte("us:" + canary + "!")),
		"basic, 3":           base64.StdEncoding.EncodeToString([]byte("use:" + canary)),
		"split by colour":    canary[:5] + "\x1b[1m" + canary[5:],
		"a line of many":     "bad line-number-two here",
		"all lines":          pem,
	}
	pieces := []string{"c4n", "s3cr3t", "line-number", base64.StdEncoding.EncodeToString([]byte(canary))[4:16],
		base64.StdEncoding.EncodeToString([]byte("u:" + canary))[4:16], base64.StdEncoding.EncodeToString([]byte("us:" + canary))[4:16]}
	for name, text := range texts {
		t.Run(name, func(t *testing.T) {
			got := redact.String(text, canary+"\n", pem, "")
			for _, piece := range pieces {
				if strings.Contains(got, piece) {
					t.Errorf("%q leaks in %q", piece, got)
				}
			}
		})
	}
}

func TestSecrets(t *testing.T) {
	text := "a\r\n\x1b[1mtok3n?x=y \xff " + base64.StdEncoding.EncodeToString([]byte("u:tok3n-that-is-long"))
	testenv.Equal(t, redact.Secrets(text, "other"), text, "changed")
	if got, want := redact.Secrets("a\r\n\x1b[1mtok3n?x=y \xff", "tok3n"), "a\r\n\x1b[1m***?x=y \xff"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := redact.Secrets(text, "tok3n-that-is-long"); strings.Contains(got, base64.StdEncoding.EncodeToString([]byte("u:tok3n-that-is-long"))[4:20]) {
		t.Errorf("leaks in %q", got)
	}
}

// TestSecretsWithMarkup masks secrets with markup characters, in reports in XML and in
// traces of a shell.
func TestSecretsWithMarkup(t *testing.T) {
	const canary = `a<b>'c"&d`
	for _, text := range []string{html.EscapeString(canary), `a&lt;b&gt;&apos;c&quot;&amp;d`, `+ login 'a<b>'\''c"&d'`} {
		if got := redact.Secrets(text, canary); !strings.Contains(got, redact.Mask) || strings.Contains(got, "d") {
			t.Errorf("%s leaks in %s", text, got)
		}
	}
}

func TestMaskPartialEnd(t *testing.T) {
	for text, want := range map[string]string{
		"say tok3":            "say ***",
		"say tok3n-":          "say ***",
		"say tok3n-more":      "say ***",
		"say tok":             "say tok",
		"tok3n- is said":      "tok3n- is said",
		"a=%2F":               "a=%2F",
		"a=%2Fwhat":           "a=***",
		"a=%2fwhat%2":         "a=***",
		"basic L3doYXQv":      "basic ***",
		"":                    "",
		"tok3n-more tok3n-mo": "tok3n-more ***",
	} {
		testenv.Equal(t, redact.MaskPartialEnd(text, "tok3n-more", "", "/what/is/it"), want, text)
	}
}

func TestStringShortSecrets(t *testing.T) {
	if got, want := redact.String("a pw: 'pw' in pwd, powpw pw", "pw"), "a ***: '***' in pwd, powpw ***"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := redact.String("secret-long secret", "secret", "secret-long"), "*** ***"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestError(t *testing.T) {
	if redact.Error(nil) != nil {
		t.Error("nil became an error")
	}
	err := redact.Error(fmt.Errorf("open https://u:p@h/: %w", fs.ErrNotExist), "u")
	if err.Error() != "open https://h/: file does not exist" || !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func TestURL(t *testing.T) {
	u := &url.URL{Scheme: "https", User: url.UserPassword("u", "p"), Host: "h", Path: "/a b", RawQuery: "c=d"}
	if got, want := redact.URL(u), "https://h/a%20b"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// maskPieces masks text, cut into pieces of n bytes.
func maskPieces(text string, n int, secrets ...string) string {
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
			got := maskPieces(text, n, canary, "abcdef", "cdefgh", "pw", "yyyyy", "")
			if strings.HasPrefix(want, "dTp") { // the digits around the secret depend on it as well
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

// TestStreamHoldsLittle checks that little is held back, even if a text is one long
// beginning of a secret.
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

// TestBase64OverLines masks a secret in base64 that is wrapped as by base64(1), openssl and
// mail, at any width.
func TestBase64OverLines(t *testing.T) {
	const canary = "c4n/ry+s3cr3t+that+is-long"
	digits := base64.StdEncoding.EncodeToString([]byte("user:" + canary + " and more of it"))
	secret := digits[8:40] // digits that depend on canary alone
	for width := 1; width < len(digits); width++ {
		for _, end := range []string{"\n", "\r\n"} {
			var lines strings.Builder
			for from := 0; from < len(digits); from += width {
				lines.WriteString(digits[from:min(from+width, len(digits))] + end)
			}
			texts := []string{redact.String(lines.String(), canary), redact.Secrets(lines.String(), canary)}
			for _, n := range []int{1, 2, 7, 1000} {
				texts = append(texts, maskPieces(lines.String(), n, canary))
			}
			for i, got := range texts {
				if joined := strings.NewReplacer("\r", "", "\n", "", "; ", "").Replace(got); strings.Contains(joined, secret[4:24]) || !strings.Contains(joined, redact.Mask) {
					t.Errorf("lines of %d that end in %q, text %d: %q", width, end, i, got)
				}
			}
			partial := lines.String()[:lines.Len()/2]
			if joined := strings.NewReplacer("\r", "", "\n", "").Replace(redact.MaskPartialEnd(partial, canary)); len(joined) > 12 {
				t.Errorf("lines of %d that end in %q, cut: %q", width, end, joined)
			}
		}
	}
}
