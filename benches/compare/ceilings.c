/* What two threads can do that one cannot: plain loops that are bound by arithmetic, by writing memory, by reading it. */
#include <stddef.h>

/* Multiply-adds on 8 independent vectors of 8 floats. Returns a value so that nothing is optimised away. */
float fma_loop(size_t rounds)
{
    float acc[64];
    for (int j = 0; j < 64; j++)
        acc[j] = (float)j;
    for (size_t i = 0; i < rounds; i++)
        for (int j = 0; j < 64; j++)
            acc[j] = acc[j] * 0.999f + 0.001f;
    float sum = 0;
    for (int j = 0; j < 64; j++)
        sum += acc[j];
    return sum;
}

/* a = b + 0.5 c */
void triad(float *restrict a, const float *restrict b, const float *restrict c, size_t n)
{
    for (size_t i = 0; i < n; i++)
        a[i] = b[i] + 0.5f * c[i];
}

/* The sum, in 64 lanes. */
float read_sum(const float *a, size_t n)
{
    float acc[64] = {0};
    for (size_t i = 0; i + 64 <= n; i += 64)
        for (int j = 0; j < 64; j++)
            acc[j] += a[i + j];
    float sum = 0;
    for (int j = 0; j < 64; j++)
        sum += acc[j];
    return sum;
}
