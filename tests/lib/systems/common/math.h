double fabs(double x);
double floor(double x);
double sqrt(double x);
float fabsf(float x);
float sqrtf(float x);
#define INFINITY __builtin_inff()
