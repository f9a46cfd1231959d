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
	"unicode/utf8"
)

// maskSecrets masks every form of every secret, longest first, so that none
// is cut short by one that it contains.
func maskSecrets(text string, secrets []string) string {
	var all []string
	for _, secret := range secrets {
		all = append(all, forms(secret)...)
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
	for _, form := range slices.Compact(all) {
		if len(form) < shortest {
			text = maskWord(text, form)
		} else {
			text = strings.ReplaceAll(text, form, Mask)
		}
	}
	return text
}

// shortest is the length in bytes from which on a form is masked within words.
const shortest = 4

// maskWord masks word where no letter, digit or mask touches it.
func maskWord(text, word string) string {
	var out strings.Builder
	for from := 0; ; {
		i := strings.Index(text[from:], word)
		if i < 0 {
			out.WriteString(text[from:])
			return out.String()
		}
		start, end := from+i, from+i+len(word)
		before, _ := utf8.DecodeLastRuneInString(text[:start])
		after, _ := utf8.DecodeRuneInString(text[end:])
		out.WriteString(text[from:start])
		if wordRune(before) || wordRune(after) {
			out.WriteString(word)
		} else {
			out.WriteString(Mask)
		}
		from = end
	}
}

func wordRune(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) || r == '*' }

var percent = regexp.MustCompile(`%[0-9A-F]{2}`)

// XML has names for quotation marks that HTML did not have.
var named = strings.NewReplacer("&#34;", "&quot;", "&#39;", "&apos;")

// forms returns how secret may appear in a text.
func forms(secret string) []string {
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
	list = append(list, markup, named.Replace(markup), strings.ReplaceAll(secret, "'", `'\''`))
	for _, escaped := range []string{url.QueryEscape(secret), url.PathEscape(secret)} {
		list = append(list, escaped, percent.ReplaceAllStringFunc(escaped, strings.ToLower))
	}
	list = append(list, strings.TrimPrefix(url.UserPassword("", secret).String(), ":"))
	for shift := range 3 {
		for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			if form := within(enc, secret, shift); len(form) >= 8 {
				list = append(list, form)
			}
		}
	}
	return slices.DeleteFunc(list, func(s string) bool { return s == "" })
}

// within returns the base64 digits that secret alone decides when shift bytes
// (modulo three) precede it and anything may follow.
func within(enc *base64.Encoding, secret string, shift int) string {
	digits := enc.EncodeToString([]byte(strings.Repeat("\x00", shift) + secret))
	from := (shift*8 + 5) / 6
	to := (shift + len(secret)) * 8 / 6
	return digits[from:to]
}
