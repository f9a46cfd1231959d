package bundle

import (
	"bytes"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// bom is the byte order mark that a text may begin with.
var bom = []byte("\xef\xbb\xbf")

// readFile reads the file name at the root of a chart, of at most limit bytes,
// without a byte order mark. Errors are those of readVerbatim.
func readFile(files fs.FS, name string, limit int64) ([]byte, error) {
	text, err := readVerbatim(files, name, limit)
	return trimBOM(text), err
}

// readVerbatim reads the file name at the root of a chart, of at most limit bytes.
// The error is an fs.ErrNotExist when there is none, and wraps [ErrChart] when
// it is too large or no file.
func readVerbatim(files fs.FS, name string, limit int64) ([]byte, error) {
	f, err := files.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, invalid(name, "it is no file")
	}
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(text)) > limit {
		return nil, invalid(name, "it has more than %d bytes", limit)
	}
	return text, nil
}

// trimBOM returns text without the byte order mark it may begin with.
func trimBOM(text []byte) []byte { return bytes.TrimPrefix(text, bom) }

// longest is how many bytes of a chart an error may repeat.
const longest = 120

// plain returns text as an error may repeat it: short, and quoted unless every
// character can be printed.
func plain(text string) string {
	text = short(text)
	if strings.ContainsFunc(text, unprintable) {
		return strconv.Quote(text)
	}
	return text
}

// quoted is text as an error may repeat it, between quotes.
func quoted(text string) string { return strconv.Quote(short(text)) }

// short is the beginning of text.
func short(text string) string {
	if len(text) <= longest {
		return text
	}
	cut := longest
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }
