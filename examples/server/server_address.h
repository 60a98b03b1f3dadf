/* server_address.h - the addresses that a server listens on. Part of server. POSIX. */
#ifndef SERVER_ADDRESS_H
#define SERVER_ADDRESS_H

#define ADDRESS_SIZE 64

/* Writes an address and port in numbers, such as 127.0.0.1:9004 or [::1]:9004. given may have a
 * name in place of the address; a port alone is one of 127.0.0.1. Returns 0, or -1 with the reason
 * in why. */
int address_resolve(const char *given, char text[ADDRESS_SIZE], char why[256]);
/* A socket that listens on an address from address_resolve(), or -1 with the reason in why, and
 * what to do. */
int address_listen(const char *text, char why[256]);
int address_is_ipv6(const char *text);
/* The address of the other end of a connection, "?" if it is unknown. */
void address_of_client(int fd, char text[ADDRESS_SIZE]);

#endif
