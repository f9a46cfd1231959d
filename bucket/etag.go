package bucket

import "strings"

// ETag returns the spelling of an entity tag that [Object] has: without quotes
// and W/. Stores spell the same tag differently in listings and in headers.
func ETag(s string) string {
	s = strings.TrimPrefix(strings.TrimSpace(s), "W/")
	if n := len(s); n >= 2 && s[0] == '"' && s[n-1] == '"' {
		s = s[1 : n-1]
	}
	return s
}
