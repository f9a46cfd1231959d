package transport

import "github.com/headgate-io/headgate/source"

// S3Keys returns the keys for a bucket of a Secret, which must have both.
func S3Keys(name string, s source.Secret) (access, secret string, err error) {
	return read(name, s).both(keyAccess, keySecret, "S3 needs accesskey and secretkey")
}

// LDAP returns the user name and password for a token service of a Secret, which must have both.
func LDAP(name string, s source.Secret) (username, password string, err error) {
	return read(name, s).both(keyUsername, keyPassword, "LDAP needs username and password")
}

// WebIdentity returns the identity token of a Secret, and the role to assume
// with it, "" when the Secret has none.
func WebIdentity(name string, s source.Secret) (token, role string, err error) {
	r := read(name, s)
	if token, err = r.Text(keyToken); err != nil {
		return "", "", err
	}
	if token == "" {
		return "", "", r.Problem(keyToken[0], "is missing: it holds the identity token, a JWT")
	}
	role, err = r.Text(keyRole)
	return token, role, err
}

// both returns two values that make no sense one without the other; why says for what they are.
func (r reader) both(first, second []string, why string) (one, other string, err error) {
	if one, err = r.Text(first); err != nil {
		return "", "", err
	}
	if other, err = r.Text(second); err != nil {
		return "", "", err
	}
	for _, missing := range []struct{ value, key string }{{one, first[0]}, {other, second[0]}} {
		if missing.value == "" {
			return "", "", r.Problem(missing.key, "is missing: %s", why)
		}
	}
	return one, other, nil
}
