package testenv

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A session is keys that the server knows.
type session struct {
	secret, token string
	expires       time.Time // zero: never
	uses          int       // how many are left, negative: any number
}

// maxSkew is how far clocks may differ.
const maxSkew = 15 * time.Minute

// amzDate is the form of the header X-Amz-Date.
const amzDate = "20060102T150405Z"

// An authorization is what the header of that name says (signature version 4).
type authorization struct {
	key, date, region, service string
	headers                    []string // that are signed
	signature                  string
}

// Signatures returns the signatures that came so far, and the temporary keys
// and session tokens that were given: what no client may show.
func (s *S3) Signatures() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.Clone(s.signed)
	for _, k := range s.sessions {
		all = append(all, k.secret, k.token)
	}
	return all
}

// verify returns how a request is refused, nil when it is not.
func (s *S3) verify(r *http.Request, body []byte) *s3Error {
	header := r.Header.Get("Authorization")
	open := s.config.AccessKey == "" && s.config.LDAPUsername == "" && s.config.WebIdentityToken == ""
	if header == "" && (open || s.config.Anonymous) {
		return nil
	}
	if header == "" {
		return s3Refusal(http.StatusForbidden, "AccessDenied", "Access Denied")
	}
	a, ok := parseAuthorization(header)
	if !ok {
		return s3Refusal(http.StatusBadRequest, "AuthorizationHeaderMalformed", "The authorization header that you provided is not valid.")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.signed = append(s.signed, a.signature)
	keys, refusal := s.known(a.key, r.Header.Get("X-Amz-Security-Token"))
	if refusal != nil {
		return refusal
	}
	if refusal := s.inTime(r, a); refusal != nil {
		return refusal
	}
	if a.region != s.config.Region {
		refusal := s3Refusal(http.StatusBadRequest, "AuthorizationHeaderMalformed",
			"The authorization header is malformed; the region '"+a.region+"' is wrong; expecting '"+s.config.Region+"'")
		refusal.Region = s.config.Region
		return refusal
	}
	return a.check(r, body, keys.secret)
}

// known returns the keys of an access key; they are used once more by that.
func (s *S3) known(key, token string) (*session, *s3Error) {
	k := s.sessions[key]
	if k == nil && key == s.config.AccessKey && key != "" {
		k = &session{secret: s.config.SecretKey, token: s.config.SessionToken, uses: -1}
	}
	switch {
	case k == nil:
		return nil, s3Refusal(http.StatusForbidden, "InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records.")
	case !same(k.token, token):
		return nil, s3Refusal(http.StatusBadRequest, "InvalidToken", "The provided token is malformed or otherwise invalid.")
	case k.uses == 0, !k.expires.IsZero() && s.now().After(k.expires):
		return nil, s3Refusal(http.StatusBadRequest, "ExpiredToken", "The provided token has expired.")
	}
	k.uses--
	return k, nil
}

// inTime returns how a request is refused whose date is not that of the server.
func (s *S3) inTime(r *http.Request, a authorization) *s3Error {
	at, err := time.Parse(amzDate, r.Header.Get("X-Amz-Date"))
	if err != nil || !strings.HasPrefix(r.Header.Get("X-Amz-Date"), a.date) {
		return s3Refusal(http.StatusForbidden, "AccessDenied", "AWS authentication requires a valid Date or x-amz-date header")
	}
	if s.now().Sub(at).Abs() > maxSkew {
		return s3Refusal(http.StatusForbidden, "RequestTimeTooSkewed", "The difference between the request time and the current time is too large.")
	}
	return nil
}

func parseAuthorization(header string) (a authorization, ok bool) {
	rest, ok := strings.CutPrefix(header, "AWS4-HMAC-SHA256 ")
	fields := map[string]string{}
	for field := range strings.SplitSeq(rest, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(field), "=")
		fields[name] = value
	}
	scope := strings.Split(fields["Credential"], "/")
	if !ok || len(scope) < 5 || scope[len(scope)-1] != "aws4_request" {
		return a, false
	}
	at := len(scope) - 4
	a = authorization{strings.Join(scope[:at], "/"), scope[at], scope[at+1], scope[at+2], strings.Split(fields["SignedHeaders"], ";"), fields["Signature"]}
	return a, a.service == "s3" && slices.Contains(a.headers, "host") && slices.IsSorted(a.headers)
}

// check returns how a request is refused whose signature is not that of a secret.
func (a authorization) check(r *http.Request, body []byte, secret string) *s3Error {
	payload := r.Header.Get("X-Amz-Content-Sha256")
	switch {
	case payload == "":
		return s3Refusal(http.StatusBadRequest, "InvalidRequest", "Missing required header for this request: x-amz-content-sha256")
	case payload != "UNSIGNED-PAYLOAD" && payload != hexSHA256(string(body)):
		return s3Refusal(http.StatusBadRequest, "XAmzContentSHA256Mismatch", "The provided 'x-amz-content-sha256' header does not match what was computed.")
	}
	for name := range r.Header {
		if name = strings.ToLower(name); strings.HasPrefix(name, "x-amz-") && !slices.Contains(a.headers, name) {
			return s3Refusal(http.StatusForbidden, "AccessDenied", "There were headers present in the request which were not signed: "+name)
		}
	}
	canonical := a.canonical(r, payload)
	scope := strings.Join([]string{a.date, a.region, a.service, "aws4_request"}, "/")
	toSign := strings.Join([]string{"AWS4-HMAC-SHA256", r.Header.Get("X-Amz-Date"), scope, hexSHA256(canonical)}, "\n")
	mac := []byte("AWS4" + secret)
	for _, part := range []string{a.date, a.region, a.service, "aws4_request", toSign} {
		h := hmac.New(sha256.New, mac)
		h.Write([]byte(part))
		mac = h.Sum(nil)
	}
	if same(hex.EncodeToString(mac), a.signature) {
		return nil
	}
	refusal := s3Refusal(http.StatusForbidden, "SignatureDoesNotMatch",
		"The request signature we calculated does not match the signature you provided. Check your key and signing method.")
	refusal.AWSAccessKeyID, refusal.StringToSign, refusal.SignatureProvided, refusal.CanonicalRequest = a.key, toSign, a.signature, canonical
	return refusal
}

// canonical returns the request in the form that is signed.
func (a authorization) canonical(r *http.Request, payload string) string {
	var query []string
	for name, values := range r.URL.Query() {
		for _, value := range values {
			query = append(query, awsEncode(name, "")+"="+awsEncode(value, ""))
		}
	}
	slices.Sort(query)
	lines := []string{r.Method, awsEncode(r.URL.Path, "/"), strings.Join(query, "&")}
	for _, name := range a.headers {
		lines = append(lines, name+":"+signedHeader(r, name))
	}
	return strings.Join(append(lines, "", strings.Join(a.headers, ";"), payload), "\n")
}

// signedHeader returns the value of a header as it is signed.
func signedHeader(r *http.Request, name string) string {
	switch name {
	case "host":
		return r.Host
	case "content-length":
		return strconv.FormatInt(r.ContentLength, 10)
	}
	values := slices.Clone(r.Header.Values(name))
	for i, value := range values {
		values[i] = strings.Join(strings.Fields(value), " ")
	}
	return strings.Join(values, ",")
}

func hexSHA256(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// awsEncode encodes all bytes of text but unreserved ones and those of keep.
func awsEncode(text, keep string) string {
	var b strings.Builder
	for i := range len(text) {
		c := text[i]
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~"+keep, c) >= 0 {
			b.WriteByte(c)
		} else {
			b.WriteString("%" + strings.ToUpper(strconv.FormatUint(uint64(c)|0x100, 16)[1:]))
		}
	}
	return b.String()
}
