package notify

import (
	"strings"
	"unicode/utf8"

	"github.com/headgate-io/headgate/internal/redact"
)

// MaxText is how much text a message has, in characters as they are sent; it
// is below the limit of every service. A text that is longer ends in "…".
const MaxText = 2000

const (
	maxField = 250         // of a name, and of the value of a field
	maxRead  = 8 * MaxText // bytes of a text that are looked at
	gap      = "\u200b"
)

// An escape returns the text by which a service shows the character r that
// follows previous.
type escape func(previous, r rune) string

// plain is for what no service interprets.
func plain(_, r rune) string { return string(r) }

// entities is Slack's way: these three characters begin all that it
// interprets but for bold, italics and the like.
func entities(_, r rune) string {
	switch r {
	case '&':
		return "&amp;"
	case '<':
		return "&lt;"
	case '>':
		return "&gt;"
	}
	return string(r)
}

// gaps is for services that have no escapes, or none in all versions:
// a space without width takes mentions, entities and links apart.
func gaps(previous, r rune) string {
	switch {
	case r == '<' || r == '@' || r == '&':
		return string(r) + gap
	case r == '(' && previous == ']':
		return gap + "("
	}
	return string(r)
}

// card is for cards that show Markdown with HTML in it.
func card(previous, r rune) string {
	if r == '(' && previous == ']' {
		return gap + "("
	}
	return entities(previous, r)
}

// markup is for HTML.
func markup(previous, r rune) string {
	switch r {
	case '"':
		return "&#34;"
	case '\'':
		return "&#39;"
	}
	return entities(previous, r)
}

// fit returns text without what nobody should see, escaped, and at most limit
// characters long.
func fit(text string, limit int, esc escape) string {
	text = redact.String(head(text, maxRead))
	var out strings.Builder
	length, cut, previous := 0, 0, rune(0)
	for _, r := range text {
		shown := esc(previous, r)
		if length += utf8.RuneCountInString(shown); length > limit {
			return out.String()[:cut] + "…"
		}
		out.WriteString(shown)
		if length < limit {
			cut = out.Len()
		}
		previous = r
	}
	return out.String()
}

// head returns the first n bytes of text, or fewer, for no character is cut in
// two, and a sign that more followed.
func head(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + "…"
}
