package redact

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"html"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// A form is a way in which a secret may appear in a text.
type form struct {
	text  string
	wraps bool // it may continue on the next line, as base64 does
}

// allForms returns the forms of all secrets, the longest first, so that a secret is not
// masked in part by another one inside it.
func allForms(secrets []string) []form {
	var all []form
	for _, secret := range secrets {
		all = append(all, forms(secret)...)
	}
	slices.SortFunc(all, func(a, b form) int {
		return cmp.Or(cmp.Compare(len(b.text), len(a.text)), cmp.Compare(a.text, b.text))
	})
	return slices.CompactFunc(all, func(a, b form) bool { return a.text == b.text })
}

// matchPrefix returns the length of the form at the beginning of text, or 0. more reports that
// text ends within the form.
func matchPrefix[T string | []byte](f form, text T) (n int, more bool) {
	if len(text) == 0 || text[0] != f.text[0] {
		return 0, false
	}
	for i := range len(f.text) {
		if f.wraps && i > 0 {
			n += lineBreak(text[n:])
		}
		if n == len(text) {
			return 0, true
		}
		if text[n] != f.text[i] {
			return 0, false
		}
		n++
	}
	return n, false
}

// lineBreak returns the length of a line break, or the beginning of one, at the
// beginning of text.
func lineBreak[T string | []byte](text T) int {
	n := 0
	if n < len(text) && text[n] == '\r' {
		n++
	}
	if n < len(text) && text[n] == '\n' {
		n++
	}
	return n
}

// Secrets returns text with all forms of the secrets masked, and otherwise unchanged. It is
// for content that is kept or passed on whole, such as the body of a response.
func Secrets(text string, secrets ...string) string {
	if len(secrets) == 0 {
		return text
	}
	s := NewStream(secrets...)
	masked := string(s.Next([]byte(text)))
	return masked + string(s.End())
}

// shortest is the minimum length, in bytes, of a form that is masked within words.
const shortest = 4

// wordRune reports whether a form next to r is part of a word.
func wordRune(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) || r == '*' }

var percent = regexp.MustCompile(`%[0-9A-F]{2}`)

// XML has names for quotation marks that HTML did not have.
var xmlEntities = strings.NewReplacer("&#34;", "&quot;", "&#39;", "&apos;")

// forms returns the forms of one secret.
func forms(secret string) []form {
	secret = strings.TrimRight(secret, "\r\n")
	if secret == "" {
		return nil
	}
	list := []string{secret}
	if lines := strings.Split(secret, "\n"); len(lines) > 1 {
		for _, line := range lines {
			if line = strings.TrimSpace(line); len(line) >= 8 {
				list = append(list, line)
			}
		}
	}
	quoted, _ := json.Marshal(secret) // a string always marshals
	list = append(list, strings.Trim(strconv.Quote(secret), `"`), strings.Trim(string(quoted), `"`))
	markup := html.EscapeString(secret)
	list = append(list, markup, xmlEntities.Replace(markup), strings.ReplaceAll(secret, "'", `'\''`))
	for _, escaped := range []string{url.QueryEscape(secret), url.PathEscape(secret)} {
		list = append(list, escaped, percent.ReplaceAllStringFunc(escaped, strings.ToLower))
	}
	list = append(list, strings.TrimPrefix(url.UserPassword("", secret).String(), ":"))
	var all []form
	for _, text := range list {
		if text != "" {
			all = append(all, form{text: text})
		}
	}
	for shift := range 3 {
		for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			if digits := base64Digits(enc, secret, shift); len(digits) >= 8 {
				all = append(all, form{digits, true})
			}
		}
	}
	return all
}

// base64Digits returns the base64 digits that depend on secret alone if shift bytes (modulo
// three) precede it, whatever follows.
func base64Digits(enc *base64.Encoding, secret string, shift int) string {
	digits := enc.EncodeToString([]byte(strings.Repeat("\x00", shift) + secret))
	from := (shift*8 + 5) / 6
	to := (shift + len(secret)) * 8 / 6
	return digits[from:to]
}
