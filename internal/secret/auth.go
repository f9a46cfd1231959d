package secret

import (
	"encoding/base64"
	"strings"
)

var (
	keyUsername = []string{"username"}
	keyPassword = []string{"password"}
	keyBearer   = []string{"bearerToken"}
)

// An Auth is what an Authorization header is made of. The zero value is none.
type Auth struct {
	Username, Password string // basic
	Bearer             string // bearer token; takes precedence
}

// Header returns the value of the Authorization header, "" for none.
func (a Auth) Header() string {
	switch {
	case a.Bearer != "":
		return "Bearer " + a.Bearer
	case a.Username != "" || a.Password != "":
		return "Basic " + base64.StdEncoding.EncodeToString([]byte(a.Username+":"+a.Password))
	}
	return ""
}

// Basic returns the user name and password of a Secret, the zero Auth
// when it has neither. A user name may come without password, but not the
// other way round.
func (r Reader) Basic() (Auth, error) {
	user, err := r.Text(keyUsername)
	if err != nil {
		return Auth{}, err
	}
	password, err := r.Text(keyPassword)
	if err != nil {
		return Auth{}, err
	}
	if user == "" && password != "" {
		return Auth{}, r.Problem("username", "is missing: password needs it")
	}
	if strings.Contains(user, ":") {
		return Auth{}, r.Problem("username", "has a colon, which basic authentication cannot carry")
	}
	return Auth{Username: user, Password: password}, nil
}

// Auth returns a bearer token or a user name and password of a Secret, never
// both. The zero Auth means that it has neither.
func (r Reader) Auth() (Auth, error) {
	token, err := r.Text(keyBearer)
	if err != nil {
		return Auth{}, err
	}
	basic, err := r.Basic()
	if err != nil || token == "" {
		return basic, err
	}
	if basic != (Auth{}) {
		return Auth{}, r.Problem("bearerToken", "and username exclude each other: remove one")
	}
	return Auth{Bearer: token}, nil
}
