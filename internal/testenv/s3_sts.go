package testenv

import (
	"crypto/rand"
	"encoding/xml"
	"net/http"
	"time"
)

// temporaryKeys is what the token service gives.
type temporaryKeys struct {
	AccessKeyID     string `xml:"AccessKeyId"`
	SecretAccessKey string
	SessionToken    string
	Expiration      string
}

// Expire ends all temporary keys that were given so far.
func (s *S3) Expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.sessions {
		k.uses = 0
	}
}

// assumeRole gives temporary keys for a password or a token.
func (s *S3) assumeRole(w http.ResponseWriter, r *http.Request) {
	action := r.FormValue("Action")
	c := s.config
	var known bool
	switch action {
	case "AssumeRoleWithLDAPIdentity":
		known = c.LDAPUsername != "" && same(r.FormValue("LDAPUsername"), c.LDAPUsername) && same(r.FormValue("LDAPPassword"), c.LDAPPassword)
	case "AssumeRoleWithWebIdentity":
		known = c.WebIdentityToken != "" && same(r.FormValue("WebIdentityToken"), c.WebIdentityToken)
	default:
		refuseRole(w, "InvalidParameterValue", "Unsupported action "+action)
		return
	}
	if !known {
		refuseRole(w, "InvalidParameterValue", "the credentials are not valid")
		return
	}
	given := s.issue()
	writeXML(w, http.StatusOK, struct {
		XMLName xml.Name
		Result  any
		Request struct{ RequestId string } `xml:"ResponseMetadata"`
	}{
		XMLName: xml.Name{Space: stsSpace, Local: action + "Response"},
		Result: struct {
			XMLName     xml.Name
			Credentials temporaryKeys
		}{xml.Name{Local: action + "Result"}, given},
	})
}

const stsSpace = "https://sts.amazonaws.com/doc/2011-06-15/"

// issue returns new temporary keys.
func (s *S3) issue() temporaryKeys {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := &session{secret: rand.Text(), token: rand.Text(), uses: s.config.Uses}
	if k.uses == 0 {
		k.uses = -1
	}
	lifetime := s.config.Lifetime
	if lifetime == 0 {
		lifetime = time.Hour
	}
	k.expires = s.now().Add(lifetime)
	id := rand.Text()[:20]
	s.sessions[id] = k
	return temporaryKeys{id, k.secret, k.token, k.expires.UTC().Format(time.RFC3339)}
}

func refuseRole(w http.ResponseWriter, code, message string) {
	writeXML(w, http.StatusBadRequest, struct {
		XMLName xml.Name
		Error   struct{ Type, Code, Message string }
	}{xml.Name{Space: stsSpace, Local: "ErrorResponse"}, struct{ Type, Code, Message string }{"Sender", code, message}})
}
