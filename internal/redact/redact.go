// Package redact removes credentials and control characters from text, at the point where
// an error becomes a condition, an event or a line of output.
//
// It removes, anywhere in the text:
//
//   - the user information, the values of the query and the fragment of every
//     URL, of malformed ones too; the names of query parameters stay
//   - what follows "Authorization:", private keys in PEM form, and JSON web
//     tokens
//   - secrets that the caller knows: verbatim, quoted, also for a shell, escaped for URLs
//     and for XML, and in base64, also in the middle of a longer base64 text such as basic
//     authentication, and across lines
//   - terminal escape sequences and other control and format characters; a
//     line break becomes "; "
//
// Bytes that are not UTF-8, as in names of files, are written as in a quoted string of Go:
// \xe9.
//
// Secrets shorter than four bytes are removed only if they stand alone, because they occur
// in ordinary words. Empty secrets are ignored.
package redact

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Mask replaces what was removed.
const Mask = "***"

var (
	// The text of an absolute URL, and of anything else that has a query.
	urlText   = regexp.MustCompile("[A-Za-z][A-Za-z0-9+.-]*://[^\\s\"'<>`]+")
	queryText = regexp.MustCompile("\\?[^\\s\"'<>`?]*=[^\\s\"'<>`]*")

	// A port in an error of net/url may be a password with a slash in it.
	port = regexp.MustCompile(`(invalid port )"(?:[^"\\]|\\.)*"`)

	header = regexp.MustCompile(`(?i)(authorization["']?\s*[:=]\s*["'\[]*)[^\s"'\]]+(\s+[^\s"'\],;]+)?`)
	pem    = regexp.MustCompile(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----(?s:.*?)(-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)`)

	// A header, which is an object, the claims and the signature (RFC 7515 section 7.1).
	jwt = regexp.MustCompile(`eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`)

	// CSI and OSC sequences of terminals, then any other escape.
	escape = regexp.MustCompile("\x1b\\[[0-?]*[ -/]*[@-~]|\x1b\\][^\x07\x1b]*(\x07|\x1b\\\\)?|\x1b.?")
)

// String returns text without credentials and control characters.
func String(text string, secrets ...string) string {
	if strings.Contains(text, "-----BEGIN") {
		text = pem.ReplaceAllString(text, Mask)
	}
	// Twice: an escape sequence may split a secret, and cleaning may change one.
	text = Secrets(text, secrets...)
	text = Secrets(clean(text), secrets...)
	text = strings.ToValidUTF8(text, string(utf8.RuneError)) // a secret may be a part of a character
	return maskPatterns(text)
}

// maskPatterns masks text that looks like a credential. Most texts contain none, which the
// checks before the regular expressions find out cheaply.
func maskPatterns(text string) string {
	if strings.Contains(text, "://") {
		text = urlText.ReplaceAllStringFunc(text, exceptPunctuation(maskURL))
	}
	if strings.Contains(text, "?") {
		text = queryText.ReplaceAllStringFunc(text, exceptPunctuation(maskQuery))
	}
	if strings.Contains(text, "invalid port") {
		text = port.ReplaceAllString(text, `${1}"`+Mask+`"`)
	}
	if strings.ContainsAny(text, ":=") {
		text = header.ReplaceAllString(text, "${1}"+Mask)
	}
	if strings.Contains(text, "eyJ") {
		text = jwt.ReplaceAllString(text, Mask)
	}
	return text
}

// Excerpt returns the beginning of a text that a server sent, for an error: redacted by
// [String], and at most about limit bytes long.
func Excerpt(text string, limit int, secrets ...string) string {
	text = MaskPartialEnd(text[:min(len(text), 4*limit)], secrets...)
	if text = strings.TrimSpace(String(text, secrets...)); len(text) > limit {
		text = strings.ToValidUTF8(text[:limit], "") + "…"
	}
	return text
}

// MaskPartialEnd returns text, which may have been cut anywhere, without the beginning of a secret at
// its end.
func MaskPartialEnd(text string, secrets ...string) string {
	longest := 0
	for _, f := range allForms(secrets) {
		for n := min(3*len(f.text), len(text)); n >= shortest && n > longest; n-- { // with a line break after each byte
			end := text[len(text)-n:]
			if length, more := matchPrefix(f, end); more || length == n {
				longest = n
			}
		}
	}
	if longest == 0 {
		return text
	}
	return text[:len(text)-longest] + Mask
}

// exceptPunctuation applies mask to s without the punctuation at its end, which belongs to the
// sentence around it.
func exceptPunctuation(mask func(string) string) func(string) string {
	return func(s string) string {
		trimmed := strings.TrimRight(s, ".,:;)]}")
		return mask(trimmed) + s[len(trimmed):]
	}
}

// URL returns u without user information, query and fragment; "" for nil.
func URL(u *url.URL) string {
	if u == nil {
		return ""
	}
	bare := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}
	return bare.String()
}

// Error returns err with its text redacted by [String]. The result unwraps to err, so that
// [errors.Is] and [errors.As] see the cause; nil stays nil.
func Error(err error, secrets ...string) error {
	if err == nil {
		return nil
	}
	return &redactedError{err: err, text: String(err.Error(), secrets...)}
}

type redactedError struct {
	err  error
	text string
}

func (r *redactedError) Error() string { return r.text }
func (r *redactedError) Unwrap() error { return r.err }

// maskURL removes credentials from an absolute URL without parsing it, because URLs that
// cannot be parsed are the ones most often in errors.
func maskURL(s string) string {
	scheme, rest, _ := strings.Cut(s, "://")
	rest, _, _ = strings.Cut(rest, "#")
	end := strings.IndexAny(rest, "/?")
	if end < 0 {
		end = len(rest)
	}
	if i := strings.LastIndexByte(rest[:end], '@'); i >= 0 {
		rest = rest[i+1:]
	} else if i := strings.LastIndexByte(rest, '@'); i >= 0 && !isPort(rest[:end]) {
		rest = rest[i+1:] // a password with a slash or question mark in it
	}
	path, query, found := strings.Cut(rest, "?")
	if !found {
		return scheme + "://" + path
	}
	return scheme + "://" + path + maskQuery("?"+query)
}

// isPort reports whether what follows the colon of host, if it has one, is a
// port.
func isPort(host string) bool {
	if strings.HasSuffix(host, "]") {
		return true
	}
	_, port, found := strings.Cut(host[strings.LastIndexByte(host, ']')+1:], ":")
	return !found || strings.Trim(port, "0123456789") == ""
}

// maskQuery masks the values of a query that begins with "?".
func maskQuery(query string) string {
	query, _, _ = strings.Cut(query[1:], "#")
	parts := strings.FieldsFunc(query, func(r rune) bool { return r == '&' || r == ';' })
	for i, part := range parts {
		name, _, found := strings.Cut(part, "=")
		if parts[i] = Mask; found {
			parts[i] = name + "=" + Mask
		}
	}
	return "?" + strings.Join(parts, "&")
}

// Escape returns text with \xNN in place of each byte that is not UTF-8.
func Escape(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	var out strings.Builder
	for i, r := range text {
		if _, n := utf8.DecodeRuneInString(text[i:]); r == utf8.RuneError && n == 1 {
			fmt.Fprintf(&out, `\x%02x`, text[i])
		} else {
			out.WriteRune(r)
		}
	}
	return out.String()
}

// clean removes terminal sequences, makes line breaks visible, and replaces unprintable
// characters.
func clean(text string) string {
	text = escape.ReplaceAllString(Escape(text), "")
	lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' || r == '\u2028' || r == '\u2029' })
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case unicode.IsPrint(r) || unicode.IsSpace(r) && !unicode.IsControl(r):
			return r
		}
		return utf8.RuneError
	}, strings.Join(lines, "; "))
}

// WithoutPassword returns an address without its password. For http and https, a user without a
// password is a token and removed too. An address that is not a URL is redacted by
// [String].
func WithoutPassword(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return String(address)
	}
	if _, has := u.User.Password(); has {
		return u.Redacted()
	}
	if u.User != nil && (u.Scheme == "http" || u.Scheme == "https") {
		u.User = url.User("xxxxx")
		return u.String()
	}
	return address
}

// RedactIfQuery returns an address redacted by [String] if it has a query, and otherwise unchanged.
func RedactIfQuery(address string) string {
	if strings.Contains(address, "?") {
		return String(address)
	}
	return address
}
