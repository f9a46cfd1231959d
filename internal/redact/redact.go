// Package redact takes credentials and control characters out of text, at the
// place where an error becomes a condition, an event or a line of output.
//
// Removed are, wherever they stand in the text:
//
//   - the user information, the values of the query and the fragment of every
//     URL, of malformed ones too; the names of query parameters stay
//   - what follows "Authorization:", private keys in PEM form, and JSON web
//     tokens
//   - secrets that the caller knows: verbatim, quoted, also for a shell,
//     escaped for URLs and for XML, and in base64, also in the middle of a
//     longer base64 text such as basic authentication, and over several lines
//   - terminal escape sequences and other control and format characters; a
//     line break becomes "; "
//
// Bytes that are not UTF-8, as in names of files, are written as in a quoted
// string of Go: \xe9.
//
// Secrets shorter than four bytes are removed only where they stand alone, for
// they occur in ordinary words. An empty secret is none.
package redact

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Mask stands for what was removed.
const Mask = "***"

var (
	// The text of an absolute URL, and of anything else that has a query.
	urlText   = regexp.MustCompile("[A-Za-z][A-Za-z0-9+.-]*://[^\\s\"'<>`]+")
	queryText = regexp.MustCompile("\\?[^\\s\"'<>`?]*=[^\\s\"'<>`]*")

	// What net/url takes for a port may be a password with a slash in it.
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

// maskPatterns masks what looks like a credential. Most texts have nothing of
// the sort, which is seen without the expressions.
func maskPatterns(text string) string {
	if strings.Contains(text, "://") {
		text = urlText.ReplaceAllStringFunc(text, sparing(maskURL))
	}
	if strings.Contains(text, "?") {
		text = queryText.ReplaceAllStringFunc(text, sparing(maskQuery))
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

// Excerpt returns the beginning of a text that a server sent, as [String] has it, for an
// error: of a long text about limit bytes.
func Excerpt(text string, limit int, secrets ...string) string {
	text = Tail(text[:min(len(text), 4*limit)], secrets...)
	if text = strings.TrimSpace(String(text, secrets...)); len(text) > limit {
		text = strings.ToValidUTF8(text[:limit], "") + "…"
	}
	return text
}

// Tail returns a text that was cut somewhere without a beginning of one of the
// secrets at its end.
func Tail(text string, secrets ...string) string {
	longest := 0
	for _, f := range formsOf(secrets) {
		for n := min(3*len(f.text), len(text)); n >= shortest && n > longest; n-- { // with a line break after each byte
			end := text[len(text)-n:]
			if whole, more := prefix(f, end); more || whole == n {
				longest = n
			}
		}
	}
	if longest == 0 {
		return text
	}
	return text[:len(text)-longest] + Mask
}

// sparing applies mask to s without the punctuation that ends it: that belongs
// to the sentence around it.
func sparing(mask func(string) string) func(string) string {
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

// Error returns err with a text that went through [String]. It unwraps to err,
// so that [errors.Is] and [errors.As] see the cause; nil stays nil.
func Error(err error, secrets ...string) error {
	if err == nil {
		return nil
	}
	return &redacted{err: err, text: String(err.Error(), secrets...)}
}

type redacted struct {
	err  error
	text string
}

func (r *redacted) Error() string { return r.text }
func (r *redacted) Unwrap() error { return r.err }

// maskURL removes what is private from an absolute URL, without parsing it:
// those that cannot be parsed turn up in errors most of all.
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

// clean removes terminal sequences, makes line breaks visible, and replaces
// what cannot be printed.
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

// Password returns an address without the password in it. For http and https a
// user without a password is a token, and goes too. An address that is no URL loses
// what [String] removes.
func Password(address string) string {
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

// Query returns an address without what [String] removes if it has a query,
// and otherwise as it was written.
func Query(address string) string {
	if strings.Contains(address, "?") {
		return String(address)
	}
	return address
}
