package testenv

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// verify returns how a request is refused, nil when it is not.
func (s *Azblob) verify(r *http.Request, phase Phase) *azureError {
	way, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	query := r.URL.Query().Has("sig")
	if way != "" && query || r.Header.Get("X-Ms-Version") == "" {
		return azureRefusal(http.StatusBadRequest, "InvalidAuthenticationInfo", "Authentication information is not given in the correct format.")
	}
	switch {
	case way == "SharedKey" && s.config.Key != "":
		return s.verifyKey(r, given)
	case way == "Bearer" && s.issues():
		return s.verifyToken(given)
	case query && s.config.SAS != "":
		return s.verifySAS(r, phase)
	case way != "" || query:
		return s.unauthenticated("")
	case s.open():
		return nil
	}
	return azureRefusal(http.StatusUnauthorized, "NoAuthenticationInformation",
		"Server failed to authenticate the request. Please refer to the information in the www-authenticate header.")
}

// issues reports whether there are tokens that are good.
func (s *Azblob) issues() bool { return s.config.Tenant != "" || s.config.Bearer != nil }

// open reports whether anybody is served.
func (s *Azblob) open() bool {
	return s.config.Anonymous || s.config.Key == "" && s.config.SAS == "" && !s.issues()
}

func (s *Azblob) unauthenticated(detail string) *azureError {
	e := azureRefusal(http.StatusForbidden, "AuthenticationFailed",
		"Server failed to authenticate the request. Make sure the value of Authorization header is formed correctly including the signature.")
	e.Detail = detail
	return e
}

// verifyKey checks a signature (Authorize with Shared Key, version 2015-02-21).
func (s *Azblob) verifyKey(r *http.Request, given string) *azureError {
	date, err := http.ParseTime(r.Header.Get("X-Ms-Date"))
	if skew := s.now().Sub(date); err != nil || skew > maxSkew || skew < -maxSkew {
		return s.unauthenticated("Request date header too old: '" + r.Header.Get("X-Ms-Date") + "'")
	}
	text := s.toSign(r)
	key, _ := base64.StdEncoding.DecodeString(s.config.Key)
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	if want := s.config.Account + ":" + base64.StdEncoding.EncodeToString(h.Sum(nil)); !same(given, want) {
		return s.unauthenticated("The MAC signature found in the HTTP request '" + given + "' is not the same as any computed signature. Server used following string to sign: '" + text + "'.")
	}
	return nil
}

// toSign returns what a signature is of.
func (s *Azblob) toSign(r *http.Request) string {
	h := r.Header
	lines := []string{r.Method}
	for _, name := range []string{"Content-Encoding", "Content-Language", "Content-Length", "Content-Md5", "Content-Type", "Date",
		"If-Modified-Since", "If-Match", "If-None-Match", "If-Unmodified-Since", "Range"} {
		lines = append(lines, h.Get(name)) // without a body Content-Length is empty, and X-Ms-Date stands for Date
	}
	var headers []string
	for name, values := range h {
		if name := strings.ToLower(name); strings.HasPrefix(name, "x-ms-") {
			headers = append(headers, name+":"+strings.Join(values, ","))
		}
	}
	slices.Sort(headers)
	var parameters []string
	for name, values := range r.URL.Query() {
		slices.Sort(values)
		parameters = append(parameters, strings.ToLower(name)+":"+strings.Join(values, ","))
	}
	slices.Sort(parameters)
	lines = append(append(lines, headers...), "/"+s.config.Account+r.URL.EscapedPath())
	return strings.Join(append(lines, parameters...), "\n")
}

// verifySAS checks that the query has all of the shared access signature, and what that permits.
func (s *Azblob) verifySAS(r *http.Request, phase Phase) *azureError {
	want, _ := url.ParseQuery(s.config.SAS)
	query := r.URL.Query()
	for name := range want {
		if !same(query.Get(name), want.Get(name)) {
			return s.unauthenticated("Signature did not match. String to sign used was " + query.Get("sp"))
		}
	}
	if end, err := time.Parse(time.RFC3339, want.Get("se")); err == nil && s.now().After(end) {
		return s.unauthenticated("Signature not valid in the specified time frame: Expiry [" + end.Format(time.RFC1123) + "]")
	}
	if permission := map[Phase]string{ListObjects: "l", GetObject: "r"}[phase]; want.Has("sp") && !strings.Contains(want.Get("sp"), permission) {
		return azureRefusal(http.StatusForbidden, "AuthorizationPermissionMismatch", "This request is not authorized to perform this operation using this permission.")
	}
	return nil
}

// verifyToken checks a bearer token.
func (s *Azblob) verifyToken(token string) *azureError {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tokens[token]
	if t == nil || t.uses == 0 || !t.expires.IsZero() && s.now().After(t.expires) {
		return azureRefusal(http.StatusUnauthorized, "InvalidAuthenticationInfo", "Server failed to authenticate the request. Please refer to the information in the www-authenticate header.")
	}
	t.uses--
	return nil
}
