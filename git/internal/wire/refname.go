package wire

import "strings"

// validRef reports whether git check-ref-format accepts name, or it is one of
// the names in capitals, such as HEAD, that have no slash.
func validRef(name string) bool {
	if strings.HasSuffix(name, ".") || strings.Contains(name, "..") || strings.Contains(name, "@{") {
		return false
	}
	if strings.ContainsAny(name, "~^:?*[\\\x7f") || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' }) {
		return false
	}
	parts := strings.Split(name, "/")
	for _, part := range parts {
		if part == "" || part[0] == '.' || strings.HasSuffix(part, ".lock") {
			return false
		}
	}
	return len(parts) > 1 || strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_") == ""
}
